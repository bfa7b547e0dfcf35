"""The table of algorithms: what a name stands for, and what the help says of it."""

import dataclasses
from typing import get_args

import pytest

from element_rl.training.offline.algorithms import (
    ALGORITHMS,
    NAMES,
    AlgorithmName,
    algorithms_help,
    form_of,
    settings_of,
)
from element_rl.training.offline.config import OfflineConfig


def test_the_table_has_every_name_and_every_setting() -> None:
    assert tuple(ALGORITHMS) == NAMES == get_args(AlgorithmName)
    forms = [form for entry in ALGORITHMS.values() for form in entry[1:] if form is not None]
    nested = {
        field.name
        for field in dataclasses.fields(OfflineConfig)
        if dataclasses.is_dataclass(getattr(OfflineConfig(("any",)), field.name))
    }
    assert {form.settings for form in forms} == nested


def test_help_names_them_all() -> None:
    assert algorithms_help() == (
        "How to learn: conservative Q-learning (cql), TD3 with behaviour cloning (td3-bc), "
        "implicit Q-learning (iql) or behaviour cloning (bc). Where actions are choices: cql or "
        "bc, in their discrete forms."
    )


def test_settings_are_those_of_the_form() -> None:
    config = OfflineConfig(("any",), algorithm="cql")
    assert settings_of(config, discrete=False) is config.cql
    assert settings_of(config, discrete=True) is config.discrete_cql
    with pytest.raises(ValueError, match="take cql or bc"):
        form_of("iql", discrete=True)
