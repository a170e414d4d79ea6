"""The client: a fenceline service seen from Python, over HTTP.

The rule: it raises the same errors as the service does (errors.py), and each keeps its promise. ``fix`` and ``retry``
were not carried out; what nobody can know is ``OutcomeUnknownError``. It holds nothing that the service does not:
closing it, or killing it, loses only what was not yet acknowledged.
"""

from fenceline.client.client import Client
from fenceline.client.delivery import Delivered, Delivery
from fenceline.client.owning import Owner
from fenceline.client.producer import Producer
from fenceline.client.reader import Reader
from fenceline.client.sessions import Session
from fenceline.client.subscribing import Subscriber

__all__ = ["Client", "Delivered", "Delivery", "Owner", "Producer", "Reader", "Session", "Subscriber"]
