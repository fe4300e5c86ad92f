"""SSRL: declarative experiments in search-agent reinforcement learning."""

__version__ = "0.1.0"
