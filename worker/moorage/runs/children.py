"""Starting a run from a run, in the parent's own transaction (clauses runs.admission, runs.wake)."""

from moorage.blobs.statements import ALL_ARE_HELD
from moorage.journal.model import Fence
from moorage.journal.write import Write
from moorage.kernel import canonical
from moorage.kernel.errors import UploadTimedOut
from moorage.runs import admission, scopes, statements
from moorage.runs.model import BodyInfo
from moorage.runs.operations import StartChild
from moorage.runs.principals import Principal
from moorage.runs.tracing_context import child_trace
from moorage.runs.values import upload_of
from moorage.store.transaction import Transaction


def start(tx: Transaction, fence: Fence, principal: Principal, info: BodyInfo, operation: StartChild) -> Write:
    """Plan the child's opening; answers the parent's entry, which waits for the run.

    The child acts as its parent does. An opening that is refused is a run that has failed at once, which the entry takes
    over. Raises Forbidden, IdInvalid, PayloadTooLarge.
    """
    key = operation.key
    scope = operation.scope
    if scope is None:
        scope = scopes.child_scope(principal.scope, key.label, key.input_sha256)
    wanted = admission.Start(
        scope=scope,
        input=operation.input,
        subject=principal.caller.subject,
        credential=principal.caller.credential,
        trace=child_trace(principal.trace),
        parent_execution=fence.execution_id,
        parent_run=principal.run_id,
        config_revision=principal.config_revision,
        config=principal.config,
    )
    admission.check(principal.caller, info, wanted)
    blob = operation.input.blob
    if blob is not None:
        held = {"upload": upload_of(fence.execution_id), "holder": fence.execution_id}
        tx.require(ALL_ARE_HELD, UploadTimedOut(), digests=canonical.compact([blob]), **held)
    planned = admission.plan(tx, tx.now, info, wanted, handoff=False)
    if blob is not None:
        tx.run(statements.KEEP_INPUT, sha256=blob, child=planned.execution.execution_id)
    return Write(key, "pending", "child", operation.position, ref=planned.run_id)
