"""A training service on CPU: a tiny model with real gradients, and a stand-in for the client of `tinker`.

    python examples/tinker/tinker_stub.py examples/tinker/probe.py --model tiny --tokens 3,4,5,6,7 9,8,7,6,5

runs a program with both, without the service.
"""

import copy
import runpy
import sys
import types as python
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Service:
    """What the server does: log-probabilities, gradients of weighted cross-entropy, Adam, samples of a snapshot."""

    def __init__(self, folder):
        torch.manual_seed(0)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.start = copy.deepcopy(self.model.state_dict())
        self.snapshots, self.weights = [], []  # `weights` has those of every call with a gradient
        self.begin()

    def begin(self):
        """A new adapter; here the whole model, as it was."""
        self.model.load_state_dict(self.start)
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def log_probs(self, inputs, targets):
        rows = torch.nn.utils.rnn.pad_sequence([*map(torch.tensor, inputs)], batch_first=True)
        logits = self.model(rows).logits.log_softmax(-1)
        return [row[range(len(own)), own] for row, own in zip(logits, targets, strict=True)]

    def forward_backward(self, inputs, targets, weights=None):
        """The log-probabilities; with weights, the gradient of -sum(weights * log_probs) is added to that so far."""
        with torch.set_grad_enabled(weights is not None):
            found = self.log_probs(inputs, targets)
        if weights is not None:
            self.weights += [torch.as_tensor(own) for own in weights]
            self.loss(found, [torch.as_tensor(own) for own in weights]).backward()
        return [one.detach() for one in found]

    def loss(self, log_probs, weights):
        return sum(-(new * own).sum() for new, own in zip(log_probs, weights, strict=True))

    def optim_step(self, params):
        for group in self.optimizer.param_groups:
            group |= {"lr": params.learning_rate, "betas": (params.beta1, params.beta2), "eps": params.eps}
        if params.grad_clip_norm:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), params.grad_clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def snapshot(self):
        self.snapshots.append(copy.deepcopy(self.model))
        return len(self.snapshots) - 1

    @torch.no_grad()
    def sample(self, snapshot, prompt, count, max_tokens, temperature, seed):
        """[(tokens, log-probabilities)], each up to its end token, which is one of its tokens."""
        generator, end = torch.Generator().manual_seed(seed), self.tokenizer.eos_token_id
        rows, drawn = torch.tensor([prompt] * count), []
        for _ in range(max_tokens):
            logits = self.snapshots[snapshot](rows).logits[:, -1].log_softmax(-1)
            token = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
            drawn.append(logits.gather(1, token))
            rows = torch.cat([rows, token], 1)
        said, log_probs = rows[:, len(prompt) :].tolist(), torch.cat(drawn, 1).tolist()
        lengths = [own.index(end) + 1 if end in own else len(own) for own in said]
        return [(own[:n], log[:n]) for own, log, n in zip(said, log_probs, lengths, strict=True)]


@dataclass
class Done:
    value: object

    def result(self):
        return self.value


@dataclass
class Tensor:
    tensor: torch.Tensor

    @classmethod
    def from_torch(cls, tensor):
        return cls(tensor)

    def to_torch(self):
        return self.tensor


@dataclass
class AdamParams:
    """With tinker 0.38.0's defaults."""

    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    grad_clip_norm: float = 0.0


@dataclass
class Datum:
    model_input: list
    loss_fn_inputs: dict = field(default_factory=dict)


class Client:
    """`TrainingClient` and `SamplingClient` as far as the example uses them, without a server between."""

    def __init__(self, service, snapshot=None):
        self.service, self.snapshot = service, snapshot

    def get_tokenizer(self):
        return self.service.tokenizer

    def save_weights_and_get_sampling_client(self):
        return Done(Client(self.service, self.service.snapshot()))

    def sample(self, prompt, num_samples, sampling_params):
        drawn = self.service.sample(self.snapshot, prompt, num_samples, **vars(sampling_params))
        return Done(SimpleNamespace(sequences=[SimpleNamespace(tokens=own, logprobs=log) for own, log in drawn]))

    def _call(self, data, weights=None):
        targets = [one.loss_fn_inputs["target_tokens"].to_torch().tolist() for one in data]
        return self.service.forward_backward([one.model_input for one in data], targets, weights)

    def forward(self, data, loss_fn):
        assert loss_fn == "cross_entropy"
        found = self._call(data)
        return Done(SimpleNamespace(loss_fn_outputs=[{"logprobs": Tensor(one)} for one in found]))

    def forward_backward_custom(self, data, loss_fn):
        """As tinker 0.38.0's `_compute_custom_loss`: a forward, the loss on leaves, and -gradient as weights."""
        leaves = [one.clone().requires_grad_(True) for one in self._call(data)]
        loss, metrics = loss_fn(data, leaves)
        loss.backward()
        self._call(data, [-one.grad for one in leaves])
        return Done(SimpleNamespace(metrics=metrics))

    def optim_step(self, params):
        self.service.optim_step(params)
        return Done(None)


def stand_in():
    """A module in place of `tinker`."""
    module = python.ModuleType("tinker")
    module.ServiceClient = object
    module.types = SimpleNamespace(
        AdamParams=AdamParams,
        Datum=Datum,
        ModelInput=SimpleNamespace(from_ints=list),
        SamplingParams=SimpleNamespace,
        TensorData=Tensor,
    )
    return module


class ServiceClient:
    def __init__(self, service):
        self.service = service

    def create_lora_training_client(self, model, rank, seed):
        self.service.begin()
        return Done(Client(self.service))


if __name__ == "__main__":
    from real_openrlhf.training import tiny_task

    sys.modules["tinker"], sys.argv = stand_in(), sys.argv[1:]
    sys.modules["tinker"].ServiceClient = lambda: ServiceClient(Service(tiny_task.unpack() / "model"))
    runpy.run_path(sys.argv[0], run_name="__main__")
