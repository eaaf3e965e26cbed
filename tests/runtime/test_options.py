"""Settings of a run: which source wins, what each accepts, the message for what it doesn't, and writing them down."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ampc.diagnostics import AmpError
from ampc.runtime.options import PER_LAYER, SETTINGS, EngineOptions, RunOptions, check_value, parse_value, resolve, to_toml

LAYERS: dict[str, dict[str, Any]] = {"embed": {}, "step": {"learning_rate": 0.5}, "message.0": {}, "message.1": {}}


def test_the_stronger_source_wins(tmp_path: Path) -> None:
    config = tmp_path / "ampc.toml"
    config.write_text("[run]\nepochs = 1\nseed = 1\nworkers = 1\ngroup = 1\n[run.layer.embed]\nlearning_rate = 0.25\n[input]\ndata = 'd'\n")
    train = {"epochs": 2, "seed": 2, "workers": 2}
    o = resolve(flags={"epochs": 4, "group": None}, sets=["epochs=3", "seed=3"], train=train, layers=LAYERS, config=config)
    assert (o.epochs, o.seed, o.workers, o.group, o.max_active_keys) == (4, 3, 2, 1, 64)
    assert o.origins["epochs"] == "(`--epochs`)" and o.origins["seed"] == "in `--set`" and "max_active_keys" not in o.origins
    assert o.per_layer == {"step": {"learning_rate": 0.5}, "embed": {"learning_rate": 0.25}}


def test_layers_have_settings_of_their_own() -> None:
    o = resolve(sets=["step.learning_rate=0.1", "message.min_update_frequency=7", "message.1.min_update_frequency=9"], layers=LAYERS)
    assert o.per_layer["step"] == {"learning_rate": 0.1}
    assert o.per_layer["message.0"] == {"min_update_frequency": 7} and o.per_layer["message.1"] == {"min_update_frequency": 9}
    assert o.engine().per_layer == o.per_layer


def test_engine_options_have_the_same_defaults_and_names() -> None:
    run, engine = RunOptions(), EngineOptions()
    for field in dataclasses.fields(EngineOptions):
        if field.name not in ("workers", "per_layer"):
            assert getattr(run, field.name) == getattr(engine, field.name), field.name
    assert run.engine().workers >= 1 and RunOptions(driver="step").engine().workers == 1 and RunOptions(workers=3).engine().workers == 3


def test_every_default_is_acceptable_and_every_setting_is_described() -> None:
    for name, s in SETTINGS.items():
        check_value(name, getattr(RunOptions(), name), "by default")
        assert s.help and s.expected()
    assert set(PER_LAYER) >= {"learning_rate", "min_update_frequency", "optimizer", "clip_norm"}


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-3", -3), ("0.5", 0.5), ("1e-3", 1e-3), ("true", True), ("false", False), ("adam", "adam"), ("'a b'", "a b"),
     ("nan", pytest.approx(float("nan"), nan_ok=True))],
)  # fmt: skip
def test_text_of_set(text: str, value: Any) -> None:
    assert parse_value(text) == value


def test_set_can_take_a_condition_away() -> None:
    assert resolve(sets=["until=", "watch="], train={"until": "loss < 1", "watch": "loss"}).until == ""


@pytest.mark.parametrize(
    ("sets", "code", "message", "help"),
    [
        (["learning_rat=1"], "AMP701", "unknown setting `learning_rat` in `--set`", "did you mean `learning_rate`?"),
        (["zzz=1"], "AMP701", "unknown setting `zzz` in `--set`", "`ampc run MANIFEST --print-config` lists all settings"),
        (["hidden=64"], "AMP701", "`hidden` in `--set` is a parameter of the model and was fixed when it was compiled",
         "compile again with `ampc compile --set hidden=64`"),
        (["step.epochs=3"], "AMP701", "`epochs` in `--set` is a setting of the whole run, not of layer `step`", None),
        (["step.learning_rte=3"], "AMP701", "unknown setting `learning_rte` in `--set`", "did you mean `learning_rate`?"),
        (["epochs=-1"], "AMP702", "`epochs` in `--set` expects an integer at least 0 and at most 1e+09, got `-1`", None),
        (["epochs=1.5"], "AMP702", "`epochs` in `--set` expects an integer at least 0 and at most 1e+09, got `1.5`", None),
        (["epochs=ten"], "AMP702", "`epochs` in `--set` expects an integer at least 0 and at most 1e+09, got `ten`", None),
        (["epochs=true"], "AMP702", "`epochs` in `--set` expects an integer at least 0 and at most 1e+09, got `true`", None),
        (["learning_rate=nan"], "AMP702", "`learning_rate` in `--set` expects a number at least 0, got `nan`", None),
        (["learning_rate=inf"], "AMP702", "`learning_rate` in `--set` expects a number at least 0, got `inf`", None),
        (["momentum=1"], "AMP702", "`momentum` in `--set` expects a number at least 0 and below 1, got `1`", None),
        (["epsilon=0"], "AMP702", "`epsilon` in `--set` expects a number above 0, got `0`", None),
        (["optimizer=adm"], "AMP702", "`optimizer` in `--set` expects one of `sgd`, `momentum`, `adam`, `adamw`, got `adm`", "did you mean `adam`?"),
        (["optimizer=3"], "AMP702", "`optimizer` in `--set` expects one of `sgd`, `momentum`, `adam`, `adamw`, got `3`", None),
        (["shuffle=1"], "AMP702", "`shuffle` in `--set` expects `true` or `false`, got `1`", None),
        (["max_active_keys=0"], "AMP702", "`max_active_keys` in `--set` expects an integer at least 1 and at most 1e+06, got `0`", None),
        (["min_update_frequency=0"], "AMP702", "`min_update_frequency` in `--set` expects an integer at least 1 and at most 1e+09, got `0`", None),
        (["step.learning_rate=x"], "AMP702", "`learning_rate` of layer `step` in `--set` expects a number at least 0, got `x`", None),
        (["on_nan=abort"], "AMP702", "`on_nan` in `--set` expects one of `stop`, `skip`, `ignore`, got `abort`", None),
        (["stpe.learning_rate=1"], "AMP705", "`stpe.learning_rate` in `--set`: the model has no layer `stpe`", "did you mean `step`?"),
        (["epochs"], "AMP706", "`--set epochs` expects `name=value` or `layer.name=value`", "for instance `--set learning_rate=0.1`"),
        (["=3"], "AMP706", "`--set =3` expects `name=value` or `layer.name=value`", "for instance `--set learning_rate=0.1`"),
        (["epochs="], "AMP706", "`--set epochs=` expects `name=value` or `layer.name=value`", "for instance `--set learning_rate=0.1`"),
        (["group_by_length=true"], "AMP714", "`group_by_length` needs groups, but `group` is 1", "give `--group` a number above 1"),
        (["mode=sync", "staleness=stash"], "AMP714", "`staleness` is `stash`, but `mode` `sync` has no staleness", "leave `staleness` at `plain`"),
    ],
)  # fmt: skip
def test_wrong_setting(sets: list[str], code: str, message: str, help: str | None) -> None:
    with pytest.raises(AmpError) as e:
        resolve(sets=sets, layers=LAYERS, model_parameters=["hidden"])
    (d,) = e.value.diagnostics
    assert (d.code, d.message) == (code, message)
    assert help is None or d.help == help


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(AmpError) as e:
        resolve(sets=["a=1", "epochs=-1"], train={"optimiser": "sgd"})
    assert [d.code for d in e.value.diagnostics] == ["AMP701", "AMP701", "AMP702"]
    assert e.value.diagnostics[0].help == "did you mean `optimizer`?"


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        ("epochs = 3\n", "`epochs` in `FILE` stands outside of the table `[run]`", "write it below a line `[run]`: `epochs = 3`"),
        ("x = 3\n[run]\n", "`x` in `FILE` stands outside of the table `[run]`", "settings stand below a line `[run]`"),
        ("[runs]\nepochs = 3\n", "the table `[runs]` in `FILE` is none that is read", "did you mean `[run]`?"),
        ("[other]\n", "the table `[other]` in `FILE` is none that is read", "settings stand in `[run]`, those of a layer in `[run.layer.NAME]`"),
        ("[layer.step]\nl2 = 1\n", "the table `[layer]` in `FILE` is none that is read", "settings of a layer stand in `[run.layer.step]`"),
    ],
)
def test_config_outside_of_its_table(tmp_path: Path, text: str, message: str, help: str) -> None:
    file = tmp_path / "f.toml"
    file.write_text(text)
    with pytest.raises(AmpError) as e:
        resolve(layers=LAYERS, config=file)
    (d,) = e.value.diagnostics
    assert (d.code, d.message, d.help) == ("AMP706", message.replace("FILE", str(file)), help)


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [
        ("[run\n", "AMP706", "can't be read as TOML"),
        ("run = 3\n", "AMP706", "expects a table `[run]`, got `3`"),
        ("[run]\nepoch = 3\n", "AMP701", "unknown setting `epoch` in"),
        ("[run]\nepochs = []\n", "AMP702", "expects an integer"),
        ("[run]\nepochs = 3.0\n", "AMP702", "expects an integer"),
        ("[run]\nlayer = 3\n", "AMP706", "expects a table, got `3`"),
        ("[run.layer]\nembed = 3\n", "AMP706", "`run.layer.embed` in"),
    ],
)
def test_wrong_config_file(tmp_path: Path, text: str, code: str, part: str) -> None:
    (tmp_path / "ampc.toml").write_text(text)
    with pytest.raises(AmpError) as e:
        resolve(config=tmp_path / "ampc.toml")
    assert e.value.diagnostics[0].code == code and part in e.value.diagnostics[0].message


def test_written_options_give_the_same_run(tmp_path: Path) -> None:
    o = resolve(flags={"epochs": 4, "until": 'a > 1 or "ü\n'}, sets=["message.learning_rate=0.5", "clip_norm=1"], layers=LAYERS)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(o))
    assert resolve(config=path, layers=LAYERS) == o
    commented = to_toml(o, comments=True)
    assert tomllib.loads(commented) == tomllib.loads(to_toml(o))
    assert "# `--epochs`: how often" in commented and "# default: " in commented
    assert resolve(config=tmp_path / "absent.toml") == RunOptions()
