"""`real-openrlhf eval`: pass@1 over k samples on the benchmarks, with standard errors, in the paper's layout."""

import argparse
import hashlib
import json
from pathlib import Path

from tqdm import tqdm

from real_openrlhf import __version__
from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.data.files import sha256, write_json, write_jsonl, write_text
from real_openrlhf.data.prompts import load_tokenizer
from real_openrlhf.errors import UserError
from real_openrlhf.evaluation import tables
from real_openrlhf.evaluation.engines import EngineSettings, Request, generate, sample_seed
from real_openrlhf.evaluation.results import Graded, per_problem, summarise
from real_openrlhf.evaluation.store import SampleStore
from real_openrlhf.evaluation.tasks import Task, digest, read_tasks


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a folder with a Hugging Face model, or its name on the hub")
    parser.add_argument(
        "--benchmarks",
        default="all",
        help=f"all, or a list like aime24,minerva of {', '.join(BENCHMARKS)}, or JSONL files (default %(default)s)",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the samples, results and tables")
    parser.add_argument("--data-dir", type=Path, help="folder with the benchmarks (default: the hub's)")
    parser.add_argument("--name", help="of the model in the tables (default: the last part of --model)")
    sampling = parser.add_argument_group("sampling (the defaults are the paper's protocol)")
    sampling.add_argument("--k", type=_positive, default=16, help="samples a problem (default %(default)s)")
    sampling.add_argument("--temperature", type=float, default=0.6, help="default %(default)s")
    sampling.add_argument("--top-p", type=float, default=0.95, help="default %(default)s")
    sampling.add_argument("--max-new-tokens", type=_positive, default=8192, help="default %(default)s")
    sampling.add_argument("--seed", type=int, default=42, help="default %(default)s")
    sampling.add_argument("--dtype", default="auto", help="of the model in vLLM (default %(default)s)")
    sampling.add_argument("--limit", type=_positive, help="only the first N problems of each benchmark")
    grading = parser.add_argument_group("grading (may change between two runs on the same samples)")
    grading.add_argument("--grader", choices=["robust", "disco"], default="robust", help="default %(default)s")
    grading.add_argument(
        "--think",
        choices=["required", "optional"],
        default="required",
        help="must a response close its thinking with </think> to be right (default %(default)s, the paper's protocol)",
    )
    machine = parser.add_argument_group("machine")
    machine.add_argument("--tensor-parallel", type=_positive, default=1, help="GPUs an engine (default %(default)s)")
    machine.add_argument("--data-parallel", type=_positive, default=1, help="engines (default %(default)s)")


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive")
    return value


def run(args: argparse.Namespace) -> int:
    if not (args.temperature >= 0 and 0 < args.top_p <= 1):
        raise UserError("--temperature must not be negative, --top-p must lie above 0 and not above 1")
    model = find_model(args.model)
    groups = read_tasks(args.benchmarks, args.data_dir, load_tokenizer(str(model)))
    prompts = {name: digest(group) for name, group in groups.items()}
    tasks = [task for group in groups.values() for task in group[: args.limit]]
    engine = EngineSettings(
        model=str(model),
        temperature=args.temperature,
        top_p=args.top_p,
        max_new_tokens=args.max_new_tokens,
        max_model_len=context_length(model, tasks, args.max_new_tokens),
        dtype=args.dtype,
        tensor_parallel=args.tensor_parallel,
    )
    sampling = {name: getattr(args, name) for name in ("temperature", "top_p", "max_new_tokens", "seed", "dtype")}
    with SampleStore(args.out).opened({"model": fingerprint(model), **sampling}, prompts) as store:
        draw(tasks, args.k, args.seed, engine, args.data_parallel, store)
        graded = grade(tasks, args.k, store, args.grader, args.think)
    settings = {"k": args.k, **sampling, "limit": args.limit, "grader": args.grader, "think": args.think}
    report(args.out, args.name or Path(args.model).resolve().name, settings, graded)
    return 0


def find_model(name: str) -> Path:
    """Its folder, downloaded if it is on the hub."""
    folder = Path(name)
    if not folder.exists():
        from huggingface_hub import snapshot_download

        try:
            return Path(
                snapshot_download(name, allow_patterns=["*.safetensors", "*.json", "*.model", "*.txt", "*.jinja"])
            )
        except Exception as error:  # the hub's client raises a dozen unrelated types for one missing model
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(f"no such model: {name} is no folder here and cannot be downloaded ({reason})") from error
    if not (folder / "config.json").exists():
        raise UserError(f"{folder} is not a model: it has no config.json")
    return folder


def fingerprint(model: Path) -> str:
    """Of every file that can change an answer; reading the weights now also warms the cache for vLLM."""
    files = sorted(
        file for file in model.iterdir() if file.suffix in {".safetensors", ".bin", ".json", ".jinja", ".model"}
    )
    return hashlib.sha256("".join(f"{file.name} {sha256(file)}\n" for file in files).encode()).hexdigest()


def context_length(model: Path, tasks: list[Task], max_new_tokens: int) -> int:
    """Just enough for the longest prompt and its response; refused where the model was not made for that many."""
    longest = max(len(task.tokens) for task in tasks)
    limit = json.loads((model / "config.json").read_text()).get("max_position_embeddings")
    if limit and longest + max_new_tokens > limit:
        raise UserError(
            f"the longest prompt has {longest} tokens and --max-new-tokens is {max_new_tokens}, but the model's context "
            f"is {limit}. Use --max-new-tokens {limit - longest} or less"
        )
    return longest + max_new_tokens


def draw(tasks: list[Task], k: int, seed: int, engine: EngineSettings, engines: int, store: SampleStore) -> None:
    """Fill the store with what it lacks."""
    done = {(sample.id, sample.sample) for sample in store}
    missing = [
        Request(task.identity, sample, sample_seed(seed, task.identity, sample), task.tokens)
        for task in tasks
        for sample in range(k)
        if (task.identity, sample) not in done
    ]
    if missing:
        total = len(tasks) * k
        with tqdm(total=total, initial=total - len(missing), desc="sampling", unit="sample", smoothing=0) as bar:
            for sample in generate(missing, engine, engines):
                store.append(sample)
                bar.update()


def grade(tasks: list[Task], k: int, store: SampleStore, grader: str, think: str) -> list[dict]:
    """Verdicts on every sample of the tasks, one line a problem."""
    from real_openrlhf.rewards.verifier import verify_many

    samples = {(sample.id, sample.sample): sample for sample in store}
    wanted = [(task, samples[task.identity, number]) for task in tasks for number in range(k)]
    verdicts = verify_many(((sample.response, task.label) for task, sample in wanted), think, grader)
    graded = [
        Graded(sample, verdict.score, verdict.reason)
        for (_, sample), verdict in zip(wanted, tqdm(verdicts, "grading", len(wanted), unit="sample"), strict=True)
    ]
    if think == "required" and not any("</think>" in one.sample.response for one in graded):
        print("no response closed its thinking with </think>: for a model that does not think, give --think optional")
    return [per_problem(task, graded[number * k : (number + 1) * k]) for number, task in enumerate(tasks)]


def report(out: Path, name: str, settings: dict, problems: list[dict]) -> None:
    benchmarks, average = summarise(problems, settings["seed"])
    results = {
        "name": name,
        "real_openrlhf": __version__,
        "settings": settings,
        "benchmarks": benchmarks,
        "average": average,
    }
    write_jsonl(out / "per_problem.jsonl", problems)
    write_json(out / "results.json", results)
    write_text(out / "table.md", [tables.markdown(results)])
    write_text(out / "table.tex", [tables.latex(results)])
    print(tables.markdown(results))
