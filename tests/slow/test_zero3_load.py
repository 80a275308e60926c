"""A ZeRO-3 policy on two CPU ranks starts from the weights in the file. What went wrong: docs/zero3-on-cpu.md."""

import pytest

LOADS = 8
# where two parameters are gathered together, the first of the two was not waited for
WITH_A_BIAS = [f"model.layers.{layer}.self_attn.{name}_proj.weight" for layer in (0, 1) for name in "qkv"]


def test_every_parameter_is_the_files(two_ranks, random_model):
    for rank in two_ranks("loads", random_model, LOADS):
        assert rank == {"setting": True, "compared": 27, "wrong": [[]] * LOADS}


@pytest.mark.parametrize(
    "arguments, wrong",
    [
        ({"fixed": False}, WITH_A_BIAS),
        ({"fixed": False, "wait_for_all": True}, []),
        ({"fixed": True}, []),
    ],
    ids=["deepspeed's default", "waiting for every gather", "the patch's setting"],
)
def test_a_late_gather_overwrites_weights_unless_it_is_waited_for(two_ranks, random_model, arguments, wrong):
    """The cause without the race: a gather that nobody waits for ends after the file's weights were written."""
    for rank in two_ranks("loads", random_model, 1, late=True, **arguments):
        assert rank["wrong"] == [wrong]


def test_a_model_without_gradients_can_be_asked_again_and_again(two_ranks, random_model):
    """DeepSpeed has prefetched from the third forward on; together with one gather at a time that loses weights."""
    first, second = two_ranks("reference_forwards", random_model, 4)
    assert first == second == first[:1] * 4
    assert "2-D" in two_ranks("reference_forwards", random_model, 4, prefetching=True)[0]
