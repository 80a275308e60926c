"""`model/README.md` of a run: what a model hub shows, and nothing of the machine."""

import yaml
from invented_runs import write_evaluation, write_run

from real_openrlhf.report.model_card import write_card

BASE = {"--actor.model_name_or_path": "Qwen/Qwen2.5-1.5B", "--data.prompt_dataset": "/secret/place/sums.jsonl"}


def test_a_card_has_what_the_weights_are_and_where_they_come_from(tmp_path):
    rows = tmp_path / "sums_eval.jsonl"
    rows.write_text('{"prompt": "1+1=", "label": "2"}\n' * 100)
    mine = {
        "--algo.real.objective": "/secret/place/mine.py:hinge",
        "--eval.dataset": str(rows),
        "--algo.real.tau": 0.5,
    }
    folder = write_run(tmp_path, seed=7, flags=BASE | mine)
    write_evaluation(folder, aime24=(0.25, 0.0625))
    assert write_card(folder) is None  # no weights, no card
    (folder / "model").mkdir()
    text = write_card(folder).read_text()
    _, head, body = text.split("---\n", 2)
    assert yaml.safe_load(head)["base_model"] == "Qwen/Qwen2.5-1.5B"
    for said in ("| data | sums.jsonl |", "| objective | mine.py:hinge |", "| tau | 0.5 |", "| seed | 7 |"):
        assert said in body
    assert f"tree `{'5e' * 20}`" in body and "| steps | 20 |" in body and "arXiv:2602.05630" in body
    assert "| aime24 | 0.250 ± 0.062 |" in body and "100 problems" in body and "± 0.04" in body
    assert "secret" not in text and str(tmp_path) not in text


def test_a_model_of_a_folder_is_named_without_its_place(tmp_path):
    folder = write_run(tmp_path, flags={"--actor.model_name_or_path": "/home/me/tiny-1234/model"})
    (folder / "model").mkdir()
    text = write_card(folder).read_text()
    assert "| base model | tiny-1234, a local folder |" in text and "/home" not in text and "base_model" not in text
