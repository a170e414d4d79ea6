"""The sessions function: sessions, named producers, ownership."""

import fenceline.access.claims.claim
import fenceline.access.claims.producers
import fenceline.access.claims.queue
import fenceline.access.leases
import fenceline.access.ownership.own
import fenceline.access.ownership.release
import fenceline.access.producer
import fenceline.service.access
import fenceline_http.handlers.sessions
import fenceline_http.operations.sessions
from fenceline_http import wiring
from functions.telemetry.observed import answering

handler = answering("sessions", wiring.service())
