"""Does a server of Tinker's API give a custom loss its gradient?

    python examples/tinker/probe.py --model Qwen/Qwen3-8B

`forward_backward_custom` sends the loss's slopes as weights of either sign, and the API's loss is the sum of -weight *
log-probability. A server that divides by the weights, by tokens or by responses, or takes weights for a mask, trains
something else, and no log shows it. This trains throw-away adapters for one small step each, with eps so large that
Adam is gradient descent, and compares how far the log-probabilities of two texts move. It exits with 1 if the server
fails. TINKER_API_KEY and TINKER_BASE_URL are the client's.
"""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

try:
    import tinker
    from tinker import types
except ModuleNotFoundError as error:
    raise SystemExit(f"probe.py: error: the package {error.name} is not installed: pip install tinker") from None

TEXTS = "The capital of France is Paris.", "Two and two are four, and three and three are six."
FEWEST, MOST = 4, 32  # tokens of a text
EPS = 100.0  # far above any slope, so that a step is learning rate / eps times the gradient
MOVED = 0.1  # nats by which a token of the first text shall move with weight 1, on average
TRIES = 5  # adapters with which the learning rate for that is sought
CLOSE, ALIKE = (
    0.25,
    0.95,
)  # a ratio may be wrong by this share; the smallest cosine. Every fault known is a factor of 2


class Server:
    """Two texts, and how their log-probabilities move when a new adapter is trained on them with some weights."""

    def __init__(self, connect: Callable[[], tinker.ServiceClient], model: str, texts: Sequence[Sequence[int]] = ()):
        self.service, self.model, self.learning_rate = connect(), model, 0.1
        if not texts:
            tokenizer = self.adapter().get_tokenizer()
            texts = [tokenizer.encode(text, add_special_tokens=False)[:MOST] for text in TEXTS]
        if min(map(len, texts)) < FEWEST:
            raise ValueError(f"a text has fewer than {FEWEST} tokens in this model's tokenizer. Give longer ones")
        self.counts = [len(text) - 1 for text in texts]  # every token but the first is a target
        self.tokens, self.data = [*texts[0]], [self.datum([*text]) for text in texts]

    def adapter(self) -> Any:
        made = self.service.create_lora_training_client(self.model, rank=8, seed=1)
        return made.result() if hasattr(made, "result") else made  # an older client waits by itself

    @staticmethod
    def datum(tokens: list[int]) -> types.Datum:
        columns = {"target_tokens": torch.tensor(tokens[1:]), "weights": torch.zeros(len(tokens) - 1)}
        inputs = {name: types.TensorData.from_torch(column) for name, column in columns.items()}
        return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)

    def log_probs(self, adapter: Any) -> torch.Tensor:
        outputs = adapter.forward(self.data, "cross_entropy").result().loss_fn_outputs
        return torch.cat([output["logprobs"].to_torch().double().flatten() for output in outputs])

    def moved(self, *sent: tuple[types.Datum, torch.Tensor], eps: float = EPS) -> torch.Tensor:
        """By how much each token of both texts moves in one step on these data with these weights of their tokens."""

        def loss(data: Any, log_probs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
            parts = [-(weights * own.flatten()).sum() for own, (_, weights) in zip(log_probs, sent, strict=True)]
            return torch.stack(parts).sum(), {}

        adapter = self.adapter()
        before = self.log_probs(adapter)
        adapter.forward_backward_custom([datum for datum, _ in sent], loss).result()
        adapter.optim_step(types.AdamParams(learning_rate=self.learning_rate, eps=eps)).result()
        return self.log_probs(adapter) - before

    def text(self, number: int, weight: float) -> tuple[types.Datum, torch.Tensor]:
        return self.data[number], torch.full((self.counts[number],), weight)

    def halves(self) -> list[tuple[types.Datum, torch.Tensor]]:
        """The first text in two: its beginning, and the whole with weight 0 there."""
        half = self.counts[0] // 2
        _, rest = self.text(0, 1.0)
        rest[:half] = 0.0
        return [(self.datum(self.tokens[: half + 1]), torch.ones(half)), (self.data[0], rest)]

    def calibrated(self) -> torch.Tensor:
        """The move with weight 1 on the first text, at a learning rate that makes it neither noise nor large."""
        for _ in range(TRIES):
            move = self.moved(self.text(0, 1.0))
            size = float(move[: self.counts[0]].abs().mean())
            if not MOVED / 3 <= size <= MOVED * 2:  # nan too
                self.learning_rate *= min(max(MOVED / size, 1e-3), 1e3) if size > 0 else 1e3
                continue
            return move
        raise ValueError(f"no learning rate up to {self.learning_rate:.0e} moves the log-probabilities by {MOVED}")


def probe(server: Server) -> bool:
    """Print a line per question; whether the server has the API's loss."""
    first, text = server.calibrated(), server.text
    second = server.moved(text(1, 1.0))
    one, two = (1 / count for count in server.counts)
    cases = {
        "again: weight 1": (server.moved(text(0, 1.0)), first, "repeats its steps"),
        "eps ten times as large": (server.moved(text(0, 1.0), eps=10 * EPS), first / 10, "reads Adam's eps"),
        "weight 2": (server.moved(text(0, 2.0)), 2 * first, "linear"),
        "weight -1": (server.moved(text(0, -1.0)), -first, "signed"),
        "weights 1 and -1, two texts": (server.moved(text(0, 1.0), text(1, -1.0)), first - second, "sums responses"),
        "weight 1, a text in two parts": (server.moved(*server.halves()), first, "sums tokens"),
        "weights 1/T, as REAL has": (server.moved(text(0, one), text(1, two)), one * first + two * second, "exact"),
    }
    print(f"{'trained with':30s}{'size / expected':>16s}{'cosine':>9s}")
    good = []
    for name, (move, expected, meaning) in cases.items():
        ratio, cosine = float(move.norm() / expected.norm()), float(torch.cosine_similarity(move, expected, 0))
        good.append(abs(ratio - 1) <= CLOSE and cosine >= ALIKE)
        print(f"{name:30s}{ratio:16.3g}{cosine:9.3f}  {meaning if good[-1] else f'NOT: {meaning}'}")
    if not all(good[:2]):
        print("Inconclusive: sizes can be compared only where steps repeat and eps is read.")
    elif all(good):
        print("The server's loss is the API's: a custom loss has its gradient there.")
    else:
        print("The server's loss is not the API's: a custom loss trains something else there. Do not train on it.")
    return all(good)


def main(words: Sequence[str] | None = None, connect: Callable[[], tinker.ServiceClient] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a name that the service knows")
    parser.add_argument("--tokens", nargs=2, metavar="1,2,...", help="two texts as token numbers, for any tokenizer")
    args = parser.parse_args(words)
    print(f"waiting for the service at {os.environ.get('TINKER_BASE_URL', 'the default address')}", flush=True)
    try:
        texts = [[*map(int, text.split(","))] for text in args.tokens or ()]
        return int(not probe(Server(connect or tinker.ServiceClient, args.model, texts)))
    except ValueError as error:
        raise SystemExit(f"probe.py: error: {error}") from None


if __name__ == "__main__":
    raise SystemExit(main())
