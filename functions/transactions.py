"""The transactions function: producer ids, coordinators, transactions."""

import fenceline.access.ownership.read_guard
import fenceline.service.subscriptions
import fenceline.service.transactions
import fenceline.transactions.coordinator
import fenceline.transactions.decide
import fenceline.transactions.decide_ends
import fenceline.transactions.ends
import fenceline.transactions.hanging
import fenceline.transactions.item
import fenceline.transactions.listing
import fenceline.transactions.once
import fenceline.transactions.pending_offsets
import fenceline_http.handlers.transactions
import fenceline_http.operations.transactions
from fenceline_http import wiring
from functions.telemetry.observed import answering

handler = answering("transactions", wiring.service())
