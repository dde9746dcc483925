"""Validated, frozen models of a replay, with the reference's names and defaults."""

from aisim_gym.spec.engine import EngineSpec, SglangSpec, TrtllmSpec
from aisim_gym.spec.fleet import AggregatedFleet, DisaggregatedFleet, FleetSpec
from aisim_gym.spec.generator import GeneratorSpec
from aisim_gym.spec.launch import DynamoSpec, LaunchSpec, ReasoningSpec, parse_launch_config
from aisim_gym.spec.loading import dump_spec, load_spec
from aisim_gym.spec.reference_arguments import (
    ReferenceArguments,
    SyntheticArguments,
    replay_spec_from_reference_arguments,
    replay_spec_from_synthetic_arguments,
)
from aisim_gym.spec.refusals import NegativeCountError, UnsupportedSpecError
from aisim_gym.spec.replay import ReplaySpec
from aisim_gym.spec.sla import SlaSpec
from aisim_gym.spec.stages import (
    DetokenizationSpec,
    EncoderSpec,
    TokenizationSpec,
    TransferLinks,
)
from aisim_gym.spec.synthetic import SyntheticSpec
from aisim_gym.spec.ticks import TickSpec
from aisim_gym.spec.timing import (
    DecodeTable,
    ExternalTiming,
    FixedTiming,
    PolynomialTiming,
    PrefillTable,
    TableTiming,
    TimingModel,
)
from aisim_gym.spec.timing_sampling import interpolation_error, sample_timing
from aisim_gym.spec.traffic import TrafficClass, TrafficSpec
from aisim_gym.spec.workload import WorkloadSpec

__all__ = [
    "AggregatedFleet",
    "DecodeTable",
    "DetokenizationSpec",
    "DisaggregatedFleet",
    "DynamoSpec",
    "EncoderSpec",
    "EngineSpec",
    "ExternalTiming",
    "FixedTiming",
    "FleetSpec",
    "GeneratorSpec",
    "LaunchSpec",
    "NegativeCountError",
    "PolynomialTiming",
    "PrefillTable",
    "ReasoningSpec",
    "ReferenceArguments",
    "ReplaySpec",
    "SglangSpec",
    "SlaSpec",
    "SyntheticArguments",
    "SyntheticSpec",
    "TableTiming",
    "TickSpec",
    "TimingModel",
    "TokenizationSpec",
    "TrafficClass",
    "TrafficSpec",
    "TransferLinks",
    "TrtllmSpec",
    "UnsupportedSpecError",
    "WorkloadSpec",
    "dump_spec",
    "interpolation_error",
    "load_spec",
    "parse_launch_config",
    "replay_spec_from_reference_arguments",
    "replay_spec_from_synthetic_arguments",
    "sample_timing",
]
