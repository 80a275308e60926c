"""The service of tinker_stub.py behind the HTTP API that tinker 0.38.0 speaks: `python tinker_server.py MODEL_FOLDER`.

Prints its port. Runs where tinker is installed, whose messages it reads and writes.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from tinker.proto import tinker_public_pb2 as messages
from tinker_stub import Service

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
    SERVER = Server(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
