"""`real-openrlhf eval`: pass@1 over k samples on the benchmarks, with standard errors, in the paper's layout."""

import argparse
import html
from typing import get_args

from tqdm import tqdm

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_json, write_jsonl, write_text
from real_openrlhf.base.parsing import path_of, positive
from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.data.problems import load_tokenizer
from real_openrlhf.evaluation.engine_process import Engine
from real_openrlhf.evaluation.engines import generate
from real_openrlhf.evaluation.grading import find_grader, grade, refuse, summarise, table
from real_openrlhf.evaluation.questions import (
    LONGEST,
    answer_length,
    find_model,
    fingerprint,
    name_and_rule,
    read_records,
    tokenized,
)
from real_openrlhf.evaluation.store import NUMBERS, PROBLEMS, TABLE, opened, refuse_foreign
from real_openrlhf.report.paired import compare_two
from real_openrlhf.report.table_forms import to_markdown
from real_openrlhf.rewards.variables import GRADERS, refuse_unreadable
from real_openrlhf.runs.provenance import code, versions
from same_answer.conventions import CONVENTIONS
from same_answer.extract import Think, after_thinking


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a folder with a Hugging Face model, or its name on the hub")
    known = f"all, or names like aime24,minerva ({', '.join(BENCHMARKS)}), or JSONL files (default %(default)s)"
    parser.add_argument("--benchmarks", default="all", help=known)
    parser.add_argument("--out", type=path_of, help="folder for the samples, results and tables")
    pair = "evaluate nothing; compare two folders that --out filled, problem by problem"
    parser.add_argument("--compare", nargs=2, type=path_of, metavar="OUT", help=pair)
    parser.add_argument("--data-dir", type=path_of, help="folder with the benchmarks (default: the hub's)")
    parser.add_argument("--name", help="the name in the tables (default: that of the model's run, else --model)")
    sampling = parser.add_argument_group("sampling (the defaults are the paper's protocol)")
    sampling.add_argument("--k", type=positive, default=16, help="samples per problem (default %(default)s)")
    likeliest = "0: the likeliest token (default %(default)s)"
    sampling.add_argument("--temperature", type=float, default=0.6, help=likeliest)
    sampling.add_argument("--top-p", type=float, default=0.95, help="default %(default)s")
    context = f"default {LONGEST}, or what the model's context leaves"
    sampling.add_argument("--max-new-tokens", type=positive, help=context)
    sampling.add_argument("--seed", type=int, default=42, help="default %(default)s")
    dtypes, dtype = ("auto", "bfloat16", "float16", "float32"), "number format in vLLM (default %(default)s)"
    sampling.add_argument("--dtype", choices=dtypes, default="auto", help=dtype)
    sampling.add_argument("--limit", type=positive, help="only the first N problems of each benchmark")
    grading = parser.add_argument_group("grading (may change between two runs on the same samples)")
    graders = "; ".join(f"{name}: {about}" for name, about in (GRADERS | {"FILE.py": "a reward file"}).items())
    grading.add_argument("--grader", default="robust", help=f"{graders} (default %(default)s)")
    required = "required: a response without </think> is incorrect (default: as the model's run graded, else "
    required += "required, as in the paper)"
    grading.add_argument("--think", choices=get_args(Think), help=required)
    kinds = f"{' and '.join(CONVENTIONS)}: count answers that copy a formula of the problem, or leave its operation "
    kinds += "undone (default: incorrect)"
    grading.add_argument("--allow", nargs="+", default=[], choices=CONVENTIONS, metavar="KIND", help=kinds)
    machine = parser.add_argument_group("machine")
    width = "GPUs of each engine (default %(default)s)"
    machine.add_argument("--tensor-parallel", type=positive, default=1, help=width)
    engines = "engines (default: as many as fit on the visible GPUs, else 1)"
    machine.add_argument("--data-parallel", type=positive, help=engines)
    memory = "of each GPU's memory, for vLLM; give less if something else uses the GPU (default: vLLM's, 0.92)"
    machine.add_argument("--gpu-memory-utilization", type=float, metavar="SHARE", help=memory)


def run(args: argparse.Namespace) -> int:
    if args.compare:
        print(compare_two(*args.compare))
        return 0
    if absent := " and ".join(f"--{name}" for name in ("model", "out") if not getattr(args, name)):
        raise UserError(f"missing: {absent}. Or give --compare with two folders that --out filled")
    refuse_unreadable()
    refuse(args)
    refuse_foreign(args.out)
    model = find_model(args.model)
    records = read_records(args.benchmarks, args.data_dir)  # before transformers is imported
    groups = tokenized(records, load_tokenizer(str(model)))
    questions = [question for group in groups.values() for question in group[: args.limit]]
    every = [question for group in groups.values() for question in group]
    name, rule = name_and_rule(args.model, every)
    grader = find_grader(args.grader, args.think or rule, tuple(args.allow))
    args.max_new_tokens = answer_length(model, every, args.max_new_tokens)
    sampling = {name: getattr(args, name) for name in ("temperature", "top_p", "max_new_tokens", "seed", "dtype")}
    engine = Engine(
        model=str(model),
        max_model_len=max(len(question.tokens) for question in questions) + args.max_new_tokens,
        tensor_parallel=args.tensor_parallel,
        gpu_memory_utilization=args.gpu_memory_utilization,
        **sampling,
    )
    drawn_by = {"model": fingerprint(model), **sampling}
    with opened(args.out, {question.identity: question.origin(drawn_by) for question in questions}) as (samples, add):
        pairs = [(question, number) for question in questions for number in range(args.k)]
        if missing := [(question, number) for question, number in pairs if (question.identity, number) not in samples]:
            bar = {"initial": len(pairs) - len(missing), "desc": "sampling", "unit": "sample", "smoothing": 0}
            for sample in tqdm(generate(missing, engine, args.data_parallel), total=len(pairs), **bar):
                add(sample)
    problems = grade(questions, args.k, samples, grader)
    think = args.think or rule if args.grader in GRADERS else None
    closed = (after_thinking(sample.response, "required") is not None for sample in samples.values())
    thinks = think != "required" or any(closed)
    settings = {"k": args.k, **sampling, "limit": args.limit, "grader": args.grader, "think": think}
    settings |= {"allow": " ".join(args.allow)} if args.allow else {}
    benchmarks, average = summarise(problems, args.seed)
    results = {"name": args.name or name, "versions": versions(), **code()}
    results |= {"settings": settings, "benchmarks": benchmarks, "average": average}
    write_jsonl(args.out / PROBLEMS, problems)
    write_json(args.out / NUMBERS, results)
    markdown = to_markdown(table(results, thinks))
    write_text(args.out / TABLE, [markdown])
    print(html.unescape(markdown))
    return 0
