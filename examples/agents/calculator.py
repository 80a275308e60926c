"""Chat messages and a Python function as a tool: the model may call `calculate`, and its last turn is the answer.

`--train.agent_func_path examples/agents/calculator.py`, with `--no-data.apply_chat_template`: the agent writes chats.
docs/change/agents.md explains each part. tiny_calculator.py makes a tiny model and questions for it.
"""

import ast
import operator
import re

from chat_agents import ChatAgent, executor_of

OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def calculate(expression: str) -> str:
    """Compute an arithmetic expression.

    Args:
        expression: numbers with + - * / and brackets, for example "3 * (4 + 5)"
    """
    if len(expression) > 200:
        raise ValueError("the expression is too long")
    return f"{value(ast.parse(expression, mode='eval').body):g}"


def value(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](value(node.left), value(node.right))
    raise ValueError("give numbers with + - * / and brackets alone")


class Calculator(ChatAgent):
    tools = (calculate,)
    turns = 4

    def score(self, turn: str) -> float:
        """Whether the last number of the last turn is the label."""
        numbers = re.findall(r"-?\d+(?:\.\d+)?", turn)
        return float(bool(numbers) and float(numbers[-1]) == float(self.label))


AgentExecutor = executor_of(Calculator)
