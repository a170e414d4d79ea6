"""The produce function: appends."""

import fenceline.service.by_key
import fenceline_http.handlers.produce
import fenceline_http.operations.produce
from fenceline_http import wiring
from functions.telemetry.observed import answering

handler = answering("produce", wiring.service())
