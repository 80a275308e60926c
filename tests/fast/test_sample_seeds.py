"""Every sample has its own seed, and it depends on nothing but the run's seed, the prompt, the draw and the index."""

from types import SimpleNamespace

from real_openrlhf.hooks.rollout.sample_seeds import SampleSeeds, seeded_by_index


def samples(seeds: SampleSeeds, prompts: list[str], count: int = 8) -> dict:
    plain = SimpleNamespace(seed=None, temperature=1.0)
    params = [seeds.seeded(plain, prompt) for prompt in prompts]
    assert plain.seed is None and all(p.temperature == 1.0 for p in params)  # one object serves many prompts
    return {
        (prompt, i): seeded_by_index(p, i).seed
        for prompt, p in zip(prompts, params, strict=True)
        for i in range(count)
    }


def test_order_does_not_matter_and_seeds_do_not_meet():
    prompts = [f"{number:04d}=" for number in range(1000)]
    forth, back = samples(SampleSeeds(42), prompts), samples(SampleSeeds(42), prompts[::-1])
    assert forth == back
    assert len(set(forth.values())) == len(forth)
    assert samples(SampleSeeds(43), prompts) != forth


def test_a_prompt_drawn_again_is_sampled_anew():
    seeds = SampleSeeds(42)
    drawn = [seeds.seeded(SimpleNamespace(seed=None), "a").seed for _ in range(2)]
    assert drawn[0] != drawn[1]


def test_without_a_seed_nothing_is_touched():
    params = SimpleNamespace(seed=None)
    assert seeded_by_index(params, 3) is params
