"""What Cloudflare loads: the classes that it calls, and nothing else."""

from moorage.edge.bell import Bell
from moorage.edge.clock import Clock
from moorage.edge.courier import Courier
from moorage.edge.entrypoint import Default
from moorage.edge.runner import Runner

__all__ = ["Bell", "Clock", "Courier", "Default", "Runner"]
