"""The defaults that the pages state are those of the code."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.documents import DOCUMENTS, ROOT, name_of, rows_of, table
from test_layers import ALLOWED

from element_rl.agents.behaviour_cloning import CloningConfig
from element_rl.agents.cql import CQLConfig
from element_rl.agents.discrete_cql import DiscreteCQLConfig
from element_rl.agents.iql import IQLConfig
from element_rl.agents.td3_bc import TD3BCConfig
from element_rl.encoders.stdim import NetworkConfig
from element_rl.integrations.exploration_info import ExplorationInfo
from element_rl.integrations.replayed import IntrinsicReward
from element_rl.memory.auto import LARGEST_EXACT_ON_CPU
from element_rl.rewards import INTRINSIC_NAMES, make_replay_reward
from element_rl.rewards.apt import AptConfig
from element_rl.rewards.disagreement import DisagreementConfig
from element_rl.rewards.e3b import E3bConfig
from element_rl.rewards.element import ElementReward
from element_rl.rewards.element_config import ElementConfig
from element_rl.rewards.element_on_policy import OnPolicyElementConfig
from element_rl.rewards.etd import EtdConfig
from element_rl.rewards.icm import IcmConfig
from element_rl.rewards.metra import MetraConfig
from element_rl.rewards.ngu import NguConfig
from element_rl.rewards.noveld import NoveldConfig
from element_rl.rewards.pseudo_counts import PseudoCountsConfig
from element_rl.rewards.re3 import Re3Config
from element_rl.rewards.ride import RideConfig
from element_rl.rewards.rise import RiseConfig
from element_rl.rewards.rle import RleConfig
from element_rl.rewards.rnd import RndConfig
from element_rl.studies.engine.methods import SCALES
from element_rl.training.encoder.config import PretrainConfig
from element_rl.training.finetune import FinetuneConfig
from element_rl.training.off_policy.config import ExploreConfig
from element_rl.training.off_policy.resolving import resolved
from element_rl.training.on_policy.config import LEARNER, OnPolicyConfig

DOCS = ROOT / "docs"
CHOOSING, ELEMENT = DOCS / "choosing.md", DOCS / "methods" / "element.md"
BASELINES = {
    "rnd": RndConfig,
    "ngu": NguConfig,
    "re3": Re3Config,
    "rise": RiseConfig,
    "apt": AptConfig,
    "icm": IcmConfig,
    "e3b": E3bConfig,
    "disagreement": DisagreementConfig,
    "ride": RideConfig,
    "noveld": NoveldConfig,
    "pseudo-counts": PseudoCountsConfig,
    "etd": EtdConfig,
    "rle": RleConfig,
    "metra": MetraConfig,
}
ROBOTS = ("Ant-v5", "Hopper-v5", "Walker2d-v5", "Humanoid-v5")
STEPS = 40_000  # of a run below 5,000,000 steps


def test_departures_from_the_paper_are_those_of_explore() -> None:
    rows = table(CHOOSING, "Choose an estimator, β, a memory")
    hopper, spec, _ = resolved(ExploreConfig("Hopper-v5", steps=STEPS))
    paper = ElementConfig()
    assert rows["`--credit`"] == [f"`{hopper.credit}`", f"`{paper.credit}`"]
    assert rows["`--bandwidth` with KDE (Hopper)"] == [
        f"{hopper.bandwidth:g}",
        f"{paper.bandwidth:g}",
    ]
    assert rows["`--memory`"][0] == f"`{ExploreConfig.memory}`"
    interval = rows["`--update-interval` in runs below 5,000,000 steps"]
    assert interval == ["a tenth of the steps", f"{paper.update_interval:,}"]
    assert (hopper.update_interval, hopper.estimator) == (STEPS // 10, "kde")
    assert "terminate_when_unhealthy=false" in hopper.env_options
    assert rows["a fall ends the episode"][0] == "no"
    own = make_replay_reward("element", env=spec.name, total_steps=STEPS)
    assert isinstance(own, ElementReward)
    assert (own.config.credit, own.config.bandwidth) == (hopper.credit, hopper.bandwidth)


def test_choosing_states_the_defaults() -> None:
    text = text_of(CHOOSING)
    ant, _, _ = resolved(ExploreConfig("Ant-v5", steps=STEPS))
    element = ElementConfig()
    for words in (
        f"Rényi entropy of order {element.renyi_order:g}, σ = {ant.bandwidth:g}, β = {ant.beta:g}",
        f"a discount of {LEARNER.discount:g} and rollouts of {LEARNER.local_steps} steps",
        f"`--normalisation {ExploreConfig('Ant-v5').normalisation}` (default)",
        f"`--beta` ({ant.beta:g})",
        f"`--episodic-weight`, {ant.episodic_weight:g})",
        f"`--memory` (`{ExploreConfig.memory}`)",
        f"the k = {element.num_neighbours} nearest of all remembered states",
        f"| | `renyi` (order {element.renyi_order:g}) | `kde` | "
        f"`knn` (k = {element.estimator_neighbours}) |",
        f"up to {LARGEST_EXACT_ON_CPU:,} states; then `hnsw`",
        f"On-policy the default is [`{OnPolicyElementConfig().normalisation}`]",
        f"`--credit {ant.credit}`, the default of `element explore`",
    ):
        assert words in text, words
    assert not ExploreConfig("Ant-v5").recent_scale
    assert "`--recent-scale` (off by default)" in text
    assert "--a3c.discount" not in text  # what is the default need not be asked for


def test_elements_own_page_states_the_defaults() -> None:
    rows = table(ELEMENT, "Settings")
    robots = {name: resolved(ExploreConfig(name, steps=STEPS))[0] for name in ROBOTS}
    estimators = {name: config.estimator for name, config in robots.items()}
    assert estimators == dict(zip(ROBOTS, ("knn", "kde", "knn", "renyi"), strict=True))
    assert rows["`--estimator`"] == [
        "`kde` on Hopper, `knn` on Walker2d, Ant and HalfCheetah, otherwise `renyi`"
    ]
    ant, hopper = robots["Ant-v5"], robots["Hopper-v5"]
    assert rows["`--bandwidth`"] == [f"{ant.bandwidth:g}; with `kde` {hopper.bandwidth:g}"]
    for option in ("beta", "episodic_weight", "credit", "normalisation"):
        assert states(rows[f"`--{option.replace('_', '-')}`"][0], getattr(ant, option)), option
    assert states(rows["`--memory`"][0], ExploreConfig.memory)  # what `auto` means hangs on the run
    largest = f"{ElementConfig().update_interval:,}, but no more than a tenth of the steps"
    assert rows["`--update-interval`"] == [largest]
    assert (ant.update_interval, ant.update_steps) == (STEPS // 10, STEPS // 100)
    assert_defaults(rows_of(ELEMENT, "name | default"), defaults_of(OnPolicyElementConfig))


@pytest.mark.parametrize("name", BASELINES)
def test_settings_of_a_method_are_those_of_its_page(name: str) -> None:
    page = table(DOCS / "methods" / f"{name}.md", "Settings")
    assert_defaults(page, defaults_of(BASELINES[name]))


def test_options_of_the_plug_ins_are_those_of_their_pages() -> None:
    from element_rl.integrations.sb3 import IntrinsicReplayBuffer

    assert_defaults(table(DOCS / "sb3.md", "Options"), arguments_of(IntrinsicReplayBuffer))
    own_loop = {
        name: others[::-1] for name, others in table(DOCS / "own-loop.md", "Options").items()
    }  # the default is the last column
    assert_defaults(own_loop, arguments_of(IntrinsicReward))
    wrapper = arguments_of(ExplorationInfo)
    named = "".join(rows_of(DOCS / "wrapper.md", "argument"))
    for name in ("cells", "num_neighbours", "memory", "bandwidth", "entropy_order", "seed"):
        (stated,) = re.findall(rf"`{name}=(.+?)`", named)
        assert states(stated, wrapper[name]), name


def test_learners_have_the_settings_of_their_pages() -> None:
    rows = table(DOCS / "offline.md", "Settings")
    cql, discrete, cloning = CQLConfig(), DiscreteCQLConfig(), CloningConfig()
    td3_bc, iql = TD3BCConfig(), IQLConfig()
    every = (cql, td3_bc, iql, discrete, cloning)
    rates = {iql.actor_learning_rate, iql.critic_learning_rate, iql.value_learning_rate}
    assert rates == {td3_bc.actor_learning_rate} == {td3_bc.critic_learning_rate}
    assert rows["learning rates"] == [
        f"actor {short(cql.actor_learning_rate)}, critics {short(cql.critic_learning_rate)}, "
        f"temperature {short(cql.temperature_learning_rate)}",
        short(td3_bc.actor_learning_rate),
        f"{short(iql.actor_learning_rate)}, of the actor falling to 0",
        short(discrete.learning_rate),
        short(cloning.learning_rate),
    ]
    assert rows["batch"] == [str(config.batch_size) for config in every]
    assert rows["hidden layers"] == [
        f"{len(config.hidden_sizes)} × {config.hidden_sizes[0]}" for config in every
    ]
    assert rows["discount, target rate"][:4] == [
        f"{config.discount:g}, {config.target_rate:g}" for config in (cql, td3_bc, iql, discrete)
    ]
    assert rows["its own"][:4] == [
        f"w {cql.conservative_weight:g}, 3 × {cql.sampled_actions} actions",
        f"α {td3_bc.alpha:g}, noise {td3_bc.smoothing_noise:g} within {td3_bc.smoothing_clip:g}, "
        f"delay {td3_bc.policy_delay}",
        f"τ {iql.expectile:g}, β {iql.inverse_temperature:g}, c {iql.weight_clip:g}, "
        f"range {iql.return_range:,.0f}",
        f"w {discrete.conservative_weight:g}",
    ]

    rows = {
        name: cells[0] for name, cells in rows_of(DOCS / "on-policy.md", "setting | value").items()
    }
    for name, value in {
        "γ of rewards": LEARNER.discount,
        "λ of GAE": LEARNER.gae_decay,
        "entropy weight": LEARNER.entropy_weight,
        "steps of a rollout": LEARNER.local_steps,
        "workers": OnPolicyConfig("Rooms-v0").num_workers,
        "weight of the squared error of the value": LEARNER.value_weight,
        "largest norm of a gradient": LEARNER.max_gradient_norm,
    }.items():
        assert float(rows[name]) == value, name
    assert rows["LSTM"].startswith(f"{LEARNER.hidden_size} units")
    assert rows["learning rate of actor and critic"].startswith(short(LEARNER.learning_rate))
    assert rows["convolutions"].startswith(f"{len(LEARNER.channels)} × {LEARNER.channels[0]} ")


def test_encoders_have_the_settings_of_their_page() -> None:
    text, config = text_of(DOCS / "encoder.md"), PretrainConfig("Rooms-v0")
    network = NetworkConfig()
    for words in (
        f"lr {short(config.learning_rate)}, batch-size {config.batch_size}, feature-size "
        f"{network.state_dim}, patience {config.patience}",
        f"`--steps`, by default {config.steps:,}",
        f"entropy-threshold {config.entropy_threshold:g}",
        f"{network.channels[0]}, {network.channels[1]} and {network.channels[2]} channels",
        f"An epoch is {config.epoch_updates} updates",
        f"a root-mean-square distance of {config.spread:g} from their mean",
    ):
        assert words in text, words


def test_fine_tuning_has_the_settings_of_its_page() -> None:
    config, page = FinetuneConfig(Path("runs/hopper")), DOCS / "finetuning.md"
    rows, text = table(page, "Options"), text_of(page)
    assert rows["`--critic-warmup`"][0].endswith(f"({config.critic_warmup:,})")
    kept = table(page, "What is transferred")
    assert {config.critics, config.temperature, config.replay} == {"fresh"}
    assert kept["critics, target critics"][0].startswith("fresh")
    assert kept["experience"][0].startswith("none")
    assert (config.anchor, config.candidates) == (0, 10)
    assert "it is off by default" in text
    assert f"`--replay {config.replay} --critic-warmup {config.critic_warmup}`" in text


def test_scales_are_those_of_the_studies() -> None:
    rows = rows_of(DOCS / "studies.md", "scale | environments")
    for name, scale in SCALES.items():
        _, steps, seeds = rows[f"`{name}`"]
        assert set(re.findall(r"[\d,]{3,}", steps.split(" (")[0])) == {
            f"{count:,}" for count in scale.steps.values()
        }
        assert seeds.split()[0] == str(scale.seeds)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_lists_of_rewards_are_complete(document: Path) -> None:
    """Where a page lists the names of rewards, it lists all that the registry has."""
    names = set(INTRINSIC_NAMES) - {"element", "element-paper"}
    for part in re.split(r"\n(?=\n|\|)", document.read_text()):
        listed = names & set(re.findall(r"[a-z][\w-]+", part))
        assert len(listed) < 5 or listed == names, f"{name_of(document)}: {names - listed}, {part}"


def test_floor_plan_is_the_one_that_the_layers_have() -> None:
    """A room imports only from rooms above it, and every room has a row."""
    above: set[str] = set()
    for cell in table(DOCS / "design.md", "The floor plan"):
        room = cell.strip("`")
        assert ALLOWED[room] <= above, f"{room} may import {ALLOWED[room] - above}, which is below"
        above.add(room)
    assert above == set(ALLOWED)


def assert_defaults(rows: Mapping[str, list[str]], defaults: Mapping[str, Any]) -> None:
    """The second cell of a row, or its beginning, is the default of what the first one names."""
    for cell, (stated, *_) in rows.items():
        names = re.findall(r"`(\w+)`", cell)
        values = [defaults[name] for name in names]
        required = all(value is inspect.Parameter.empty for value in values)
        one_for_all = all(states(stated, value) for value in values)
        parts = stated.split(", ")
        each = len(parts) == len(values) and all(map(states, parts, values))
        assert required or one_for_all or each, f"{cell}: {stated}, in the code {values}"


def states(cell: str, value: Any) -> bool:
    """Whether a cell begins with a value, in one of the ways in which pages write it."""
    written = cell.replace("`", "").replace('"', "")
    number = re.match(r"[\d.]+(?:,\d{3})*(?:e-?\d+)?", written)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return bool(number) and float(number[0].replace(",", "")) == value  # type: ignore[index]
    ways = {str(value), str(value).lower()}
    if isinstance(value, tuple):
        ways |= {", ".join(f"{part:,}" for part in value)}
    if value is None:
        ways |= {""}
    return any(way == written or re.match(rf"{re.escape(way)}[,; ]", written) for way in ways)


def short(value: Any) -> str:
    """A number as a page writes it: 3e-4, not 0.0003."""
    small = isinstance(value, float) and 0 < value < 1e-3
    return f"{value:.0e}".replace("e-0", "e-") if small else f"{value:g}"


def defaults_of(config: Any) -> dict[str, Any]:
    made = config()
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(config)}


def arguments_of(made: Any) -> dict[str, Any]:
    return {name: argument.default for name, argument in inspect.signature(made).parameters.items()}


def text_of(document: Path) -> str:
    return " ".join(document.read_text().split())
