"""Every mutation of the product, each on one line, for suites that ask the same of all of them."""

from tests.contract.operations_of_messages import MESSAGES
from tests.contract.operations_of_records import RECORDS
from tests.contract.operations_of_runs import RUNS
from tests.contract.operations_of_time import TIME, OneBody
from tests.contract.operations_world import NOW, Operation, World

__all__ = ["NOW", "OPERATIONS", "OneBody", "Operation", "World"]

OPERATIONS = [*RECORDS, *RUNS, *MESSAGES, *TIME]
