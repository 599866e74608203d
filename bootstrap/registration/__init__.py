"""Keeping a zone's records true: a PSPH registers itself and its zone's keys by dynamic update."""

from bootstrap.registration.registrar import Registrar
from bootstrap.registration.settings import RegistrarSettings
from bootstrap.registration.states import LearningState, ZoneState
from bootstrap.registration.transfer import learn_hosts
from bootstrap.registration.tsig import TsigKey
from bootstrap.registration.zone_key import ZoneKey

__all__ = [
    "LearningState",
    "Registrar",
    "RegistrarSettings",
    "TsigKey",
    "ZoneKey",
    "ZoneState",
    "learn_hosts",
]
