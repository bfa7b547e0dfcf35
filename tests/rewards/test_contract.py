"""What holds for every reward of the registry, in every form: the contract of `rewards.interface`.

Each lives a short life: it observes an episode, learns from batches that carry its notes, and
judges a batch. Formulas are tested in the file of each reward, by hand.
"""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import padded_episode, transitions
from support.small_rewards import SMALL_REWARDS

from element_rl.replay.ring import Episode, Transitions
from element_rl.rewards import NAMES, Reward, make_reward
from element_rl.rewards.expression import names_in
from element_rl.rewards.interface import RewardSpec
from element_rl.rewards.recent_scale import recently_scaled
from element_rl.storage.trees import arrays_to_tree, tree_to_arrays

SPEC = RewardSpec(
    observation_dim=3, action_dim=2, state_dim=2, max_episode_steps=8, total_steps=200
)
EARLY: dict[str, Any] = {"update_interval": 4, "update_steps": 4, "memory": "exact"}
POOL: dict[str, Any] = {"pool_size": 16, "num_neighbours": 2}
# What a reward is called in a test → its name and options. Every name of the registry is here.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "element": ("element", EARLY),
    "element-knn": ("element", EARLY | {"estimator": "knn", "credit": "state"}),
    "element-variation": ("element", EARLY | {"credit": "variation"}),
    "element-spaced": (
        "element",
        {"memory": "spaced", "remember": "always", "own_episode": "out", "memory_capacity": 4},
    ),
    "element-robust": ("element", EARLY | {"normalisation": "robust", "own_episode": "out"}),
    "element-kde": ("element", EARLY | {"estimator": "kde", "normalisation": "running"}),
    "element-paper": ("element-paper", SMALL_REWARDS["element-paper"]),
    **{
        name: (name, SMALL_REWARDS[name])
        for name in ("rnd", "icm", "ngu", "e3b", "etd", "rle", "metra")
    },
    "rle-product": ("rle", SMALL_REWARDS["rle"] | {"form": "product"}),
    "metra-skills": ("metra", SMALL_REWARDS["metra"] | {"latent_kind": "choice"}),
    "ngu-before": (
        "ngu",
        SMALL_REWARDS["ngu"] | {"error_statistics": "all", "observation_clip": None},
    ),
    "re3": ("re3", POOL),
    "re3-code": ("re3", POOL | {"form": "code", "space": "observation"}),
    "re3-whole": ("re3", {"pool": "whole", "num_neighbours": 2}),
    "re3-code-whole": ("re3", {"pool": "whole", "form": "code", "space": "observation"}),
    "rise": ("rise", POOL),
    "rise-whole": ("rise", {"pool": "whole", "num_neighbours": 2}),
    "apt": ("apt", SMALL_REWARDS["apt"] | POOL),
    **{name: (name, SMALL_REWARDS[name]) for name in ("disagreement", "ride", "noveld")},
    "pseudo-counts": ("pseudo-counts", SMALL_REWARDS["pseudo-counts"]),
    "pseudo-counts-simhash": (
        "pseudo-counts",
        SMALL_REWARDS["pseudo-counts"] | {"hash": "simhash", "projections": 16},
    ),
    "extrinsic": ("extrinsic", {}),
    "sum": ("element + 0.5*rnd", {"element": EARLY, "rnd": SMALL_REWARDS["rnd"]}),
    "product": ("rnd * e3b", {name: SMALL_REWARDS[name] for name in ("rnd", "e3b")}),
    "sum-of-memories": (
        "2*re3 - element",
        {"re3": {"pool": "whole", "num_neighbours": 2}, "element": EARLY},
    ),
    "sum-of-learners": (
        "rnd + 0.5*icm + 0*rise*extrinsic",
        {"rnd": SMALL_REWARDS["rnd"], "icm": SMALL_REWARDS["icm"], "rise": POOL},
    ),
    "scaled": ("rise", POOL),
    "scaled-whole": ("rise", {"pool": "whole", "num_neighbours": 2}),
}
AGENTS, LENGTH, ROWS, BATCHES, SIZE = 3, 6, 8, 3, 8
every_form = pytest.mark.parametrize("form", FORMS)


def test_every_reward_of_the_registry_is_tested_here() -> None:
    assert {each for name, _ in FORMS.values() for each in names_in(name)} == set(NAMES)


@lru_cache
def reward_of(form: str) -> Reward:
    name, options = FORMS[form]
    made = make_reward(name, **options)
    return recently_scaled(made) if form.startswith("scaled") else made


def random_fields(rng: np.random.Generator, rows: int) -> dict[str, np.ndarray]:
    widths = {"observation": (3,), "action": (2,), "next_observation": (3,), "state": (2,)}
    fields = {name: rng.normal(size=(rows, *width)) for name, width in widths.items()}
    return fields | {"extrinsic_reward": rng.normal(size=rows)}


def random_life(agent: int) -> tuple[Episode, list[Transitions]]:
    """An episode of an agent, and the batches that it learns from; notes are drawn too."""
    rng = np.random.default_rng(agent)
    episode = padded_episode(ROWS, LENGTH, **random_fields(rng, ROWS))
    return episode, [transitions(SIZE, **random_fields(rng, SIZE)) for _ in range(BATCHES)]


def lived(reward: Reward, key: Any, episode: Episode, batches: Any) -> dict[str, Any]:
    """Everything that comes of a life: the state, notes, metrics, rewards and their terms."""
    state, notes = reward.observe(reward.init(key, SPEC), episode)
    metrics = {}
    for batch in batches:
        batch = with_notes(batch, notes)
        state, metrics = reward.update(state, batch, key)
    last = with_notes(batches[-1], notes)
    judged = {"reward": reward.reward(state, last), "terms": reward.reward_terms(state, last)}
    return {"state": state, "notes": notes, "metrics": metrics, **judged}


def with_notes(batch: Transitions, notes: dict[str, Any]) -> Transitions:
    """The batch's first transitions are those of the episode, over again where there are more."""
    rows = np.arange(SIZE) % LENGTH
    return batch._replace(notes={name: note[rows] for name, note in notes.items()})


@lru_cache
def alone(form: str, agent: int) -> dict[str, Any]:
    live = jax.jit(lived, static_argnums=0)
    key = jax.random.split(jax.random.key(0), AGENTS)[agent]
    return jax.device_get(live(reward_of(form), key, *random_life(agent)))


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-4) -> None:
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@every_form
def test_an_agent_of_a_population_is_the_agent_alone(form: str) -> None:
    lives = [random_life(agent) for agent in range(AGENTS)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *lives)
    keys = jax.random.split(jax.random.key(0), AGENTS)
    together = jax.jit(jax.vmap(lived, in_axes=(None, 0, 0, 0)), static_argnums=0)
    population = jax.device_get(together(reward_of(form), keys, *stacked))
    for agent in range(AGENTS):
        mine = [leaf[agent] for leaf in jax.tree.leaves(population)]
        assert_close(mine, alone(form, agent))


@every_form
def test_what_it_says_of_itself_is_what_it_gives(form: str) -> None:
    reward, life = reward_of(form), alone(form, 0)
    assert set(reward.metric_names) >= set(life["metrics"])
    assert {name: note.shape for name, note in life["notes"].items()} == {
        name: (ROWS, *shape) for name, shape in reward.note_shapes().items()
    }
    assert life["reward"].shape == (SIZE,)
    assert all(term.shape == (SIZE,) for term in life["terms"].values())
    assert np.isfinite(life["reward"]).all()


@every_form
def test_padding_changes_nothing(form: str) -> None:
    """Rows of an episode that are not there may hold anything."""
    reward, (episode, _) = reward_of(form), random_life(0)
    garbage = [leaf.at[LENGTH:].set(False if leaf.dtype == bool else 7) for leaf in episode[:6]]
    state = jax.jit(reward.init, static_argnums=1)(jax.random.key(0), SPEC)
    observe = jax.jit(reward.observe)
    (known, notes), (other, others) = (
        observe(state, padded) for padded in (episode, Episode(*garbage, *episode[6:]))
    )
    present = jax.tree.map(lambda note: note[:LENGTH], (notes, others))
    assert_close(*present, tolerance=1e-6)
    judged = random_life(1)[1][0]
    rewards = [jax.jit(reward.reward)(state, with_notes(judged, notes)) for state in (known, other)]
    assert_close(*rewards, tolerance=1e-6)


@every_form
def test_a_checkpoint_gives_the_same_rewards(form: str) -> None:
    """Written and read, a state goes on as if nothing had happened, bit for bit."""
    reward, life = reward_of(form), alone(form, 0)
    template = jax.jit(reward.init, static_argnums=1)(jax.random.key(9), SPEC)
    restored = arrays_to_tree(template, tree_to_arrays(life["state"], "reward"), "reward")
    batch = jax.tree.map(jnp.asarray, with_notes(random_life(0)[1][-1], life["notes"]))

    @jax.jit
    def go_on(state: Any) -> Any:
        state, _ = reward.update(state, batch, jax.random.key(3))
        return reward.reward(state, batch)

    np.testing.assert_array_equal(go_on(life["state"]), go_on(restored))


@every_form
def test_states_that_are_all_alike_stay_finite(form: str) -> None:
    reward = reward_of(form)
    same = transitions(SIZE)
    episode = padded_episode(ROWS, LENGTH)
    life = jax.jit(lived, static_argnums=0)(reward, jax.random.key(0), episode, [same] * 3)
    for leaf in jax.tree.leaves((life["reward"], life["terms"], life["metrics"])):
        assert np.isfinite(leaf).all()
