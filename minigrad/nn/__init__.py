"""Modules, layers and initial weights."""

from . import init
from .layers import *
from .layers import __all__ as _layers
from .module import Module, Parameter

__all__ = ["Module", "Parameter", "init", *_layers]
