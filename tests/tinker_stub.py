"""A training service on CPU: a tiny model with real gradients, and a stand-in for the client of `pip install tinker`.

`python tinker_stub.py MODEL_FOLDER` puts the same service behind the HTTP API that tinker 0.38.0 speaks, for the
published client, where that is installed: it reads and writes its messages. It prints its port.
"""

import copy
import json
import sys
import threading
import types as python
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


class Service:
    """What the server does: log-probabilities, gradients of weighted cross-entropy, Adam, samples of a snapshot."""

    def __init__(self, folder):
        torch.manual_seed(0)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.optimizer = torch.optim.Adam(self.model.parameters(), betas=(0.9, 0.95), eps=1e-12)
        self.snapshots, self.weights = [], []  # `weights` has those of every call with a gradient

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
            loss = sum(-(new * torch.as_tensor(own)).sum() for new, own in zip(found, weights, strict=True))
            loss.backward()
        return [one.detach() for one in found]

    def optim_step(self, learning_rate, grad_clip_norm):
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), grad_clip_norm)
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
        self.service.optim_step(params.learning_rate, params.grad_clip_norm)
        return Done(None)


def stand_in():
    """A module in place of `tinker`."""
    module = python.ModuleType("tinker")
    module.ServiceClient = object
    module.types = SimpleNamespace(
        AdamParams=SimpleNamespace,
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
        return Done(Client(self.service))


# Behind HTTP.

CHUNK = 5  # rollouts a request: the client cuts its data, and the server sees no whole group
ANSWERS = {
    "client/config": {"fwdbwd_max_chunk_len": CHUNK, "use_pyqwest_transport": False},
    "client/dynamic_config": {},
    "create_session": {"session_id": "session"},
    "session_heartbeat": {"type": "session_heartbeat"},
    "telemetry": {"status": "accepted"},
    "create_sampling_session": {"sampling_session_id": "0"},
}


class Server:
    def __init__(self, folder):
        self.folder, self.service = folder, Service(folder)
        self.results, self.waiting, self.turn = {}, {}, 1
        self.changed = threading.Condition(threading.RLock())

    def answer(self, call, body):
        """What a request gets at once. Requests of the trainer are run in the order of their numbers."""
        if call in ANSWERS:
            return ANSWERS[call]
        if call == "get_info":
            return {"model_id": "model", "model_data": {"model_name": self.folder, "tokenizer_id": self.folder}}
        if call == "forward_backward":
            request = messages.ForwardBackwardRequest.FromString(body)
            return self.in_turn(request.seq_id, lambda: self.forward_backward(request))
        asked = json.loads(body)
        if call == "create_model":
            return self.kept({"model_id": "model", "type": "create_model"})
        if call == "optim_step":
            adam = asked["adam_params"]
            return self.in_turn(asked["seq_id"], lambda: self.optim_step(adam))
        if call == "save_weights_for_sampler":
            return self.in_turn(asked["seq_id"], lambda: {"sampling_session_id": str(self.service.snapshot())})
        assert call == "asample", call
        with self.changed:
            answer = self.kept(self.sample(asked))
        return answer | {"sample_sequence_ids": [str(number) for number in range(asked["num_samples"])]}

    def in_turn(self, number, run):
        """The client sends the first part of a call last: a request waits here, and its sender goes on."""
        with self.changed:
            name = f"turn {number}"
            self.waiting[number] = lambda: self.results.__setitem__(name, run())
            while self.turn in self.waiting:
                self.waiting.pop(self.turn)()
                self.turn += 1
            self.changed.notify_all()
        return {"request_id": name}

    def kept(self, result):
        with self.changed:
            name = str(len(self.results))
            self.results[name] = result
        return {"request_id": name}

    def result(self, name):
        with self.changed:
            self.changed.wait_for(lambda: name in self.results)
            return self.results[name]

    def optim_step(self, adam):
        self.service.optim_step(adam["learning_rate"], adam["grad_clip_norm"])
        return {"metrics": {}}

    def sample(self, asked):
        tokens = [token for chunk in asked["prompt"]["chunks"] for token in chunk["tokens"]]
        params = {name: asked["sampling_params"][name] for name in ("max_tokens", "temperature", "seed")}
        answer = messages.SampleResponse()
        drawn = self.service.sample(int(asked["sampling_session_id"]), tokens, asked["num_samples"], **params)
        for said, log_probs in drawn:
            one = answer.sequences.add()
            one.tokens, one.logprobs = np.int32(said).tobytes(), np.float32(log_probs).tobytes()
        return answer.SerializeToString()

    def forward_backward(self, request):
        def column(name, dtype):
            return [np.frombuffer(one.loss_fn_inputs[name].dense, dtype).copy() for one in request.data]

        assert request.loss_fn == "cross_entropy" and len(request.data) <= CHUNK
        inputs = [
            [token for chunk in one.model_input for token in np.frombuffer(chunk.encoded_text.tokens, np.int32)]
            for one in request.data
        ]
        weights = None if request.forward_only else column("weights", np.float32)
        found = self.service.forward_backward(inputs, column("target_tokens", np.int64), weights)
        answer = messages.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        answer.metrics["loss:sum"] = 0.0
        record = answer.loss_fn_outputs.add()
        record.num_datums = len(found)
        record.fields["logprobs"].dtype = messages.DTYPE_FLOAT32
        record.fields["logprobs"].data = torch.cat(found).numpy().tobytes()
        ends = np.cumsum([0, *map(len, found)]) * 4
        record.fields["logprobs"].offsets = ends.astype(np.int64).tobytes()
        return answer.SerializeToString()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        call = self.path.partition("?")[0].removeprefix("/api/v1/")
        if call == "retrieve_future":
            answer = SERVER.result(json.loads(body)["request_id"])
        else:
            answer = SERVER.answer(call, body)
        kind = "application/x-protobuf" if isinstance(answer, bytes) else "application/json"
        text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    from tinker.proto import tinker_public_pb2 as messages

    SERVER = Server(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
