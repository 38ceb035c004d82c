"""Modules, layers and initial weights."""

from . import init
from .layers import *
from .layers import __all__ as _layers
from .module import Module, Parameter
from .recurrent import *
from .recurrent import __all__ as _recurrent
from .recurrent import detach
from .tagger import Tagger
from .transformer import *
from .transformer import __all__ as _transformer

__all__ = ["Module", "Parameter", "Tagger", "detach", "init", *_layers, *_recurrent, *_transformer]
