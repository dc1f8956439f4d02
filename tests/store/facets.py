"""Which tests of the contract depend on who runs a transaction, and not on the statements in it.

A store in memory or in a file is written by the same operations and the same statements whoever runs them. So the whole
contract is kept on a file and on PostgreSQL, and the tests below in memory and on everything else that runs
transactions on a file; `test_whole_contract` keeps all of it there, with --run-slow.
"""

from __future__ import annotations

from tests.contract import BackendContract
from tests.contract.append import AppendContract, ConflictContract, IdempotencyContract
from tests.contract.atomic import AtomicContract, BadInputContract, SizeContract
from tests.contract.budgets import BudgetContract
from tests.contract.deletion import DeletionContract, TaskContract
from tests.contract.documents import AttachmentContract, DocumentContract
from tests.contract.reads import ReadContract
from tests.contract.redaction import RedactionContract
from tests.contract.sessions import ListingContract, SessionContract
from tests.contract.usage import LedgerContract

OF_RUNNERS = frozenset(
    test.__name__
    for test in (
        AppendContract.test_a_generated_entry_id_that_is_taken_is_asked_for_again,
        AttachmentContract.test_every_read_puts_pictures_back,
        AtomicContract.test_what_one_operation_raises_undoes_all_and_names_it,
        AtomicContract.test_a_deletion_in_a_batch_takes_along_what_the_batch_did_there,
        AtomicContract.test_a_batch_with_a_key_is_done_once,
        AtomicContract.test_what_appends_of_a_batch_came_to_is_recalled_by_its_key,
        AtomicContract.test_batches_on_the_same_sessions_at_once_happen_one_after_the_other,
        AtomicContract.test_a_batch_that_is_refused_does_not_fail_those_beside_it,
        AtomicContract.test_a_reader_never_sees_half_of_a_batch,
        AtomicContract.test_a_retry_of_going_elsewhere_has_other_ids_and_the_same_answer,
        AtomicContract.test_going_elsewhere_is_found_out_when_it_is_done,
        BadInputContract.test_every_method_refuses_to_work_once_the_store_is_closed,
        BudgetContract.test_budgets_set_by_several_at_once_are_one,
        BudgetContract.test_of_many_reservations_at_once_no_more_are_made_than_there_is_room_for,
        BudgetContract.test_after_close_budgets_are_refused,
        ConflictContract.test_of_several_appends_to_one_leaf_at_once_exactly_one_wins,
        ConflictContract.test_of_several_appends_that_may_branch_all_land_and_one_is_on_the_path,
        ConflictContract.test_batches_appended_at_once_never_interleave,
        ConflictContract.test_sessions_written_at_once_do_not_disturb_each_other,
        ConflictContract.test_a_refused_operation_does_not_fail_those_beside_it,
        ConflictContract.test_of_several_sessions_created_with_one_key_at_once_exactly_one_is,
        ConflictContract.test_a_conflicting_append_may_land_as_a_sibling_branch_and_moves_nobodys_leaf,
        DeletionContract.test_forks_of_forks_may_go_in_any_order,
        DeletionContract.test_the_id_of_a_deleted_session_can_be_used_again_and_nothing_comes_back,
        DocumentContract.test_a_document_is_read_as_it_was_stored,
        IdempotencyContract.test_the_retry_of_an_append_returns_the_first_result,
        IdempotencyContract.test_an_operation_that_failed_does_not_use_up_its_key,
        IdempotencyContract.test_of_several_retries_at_once_one_is_the_first,
        IdempotencyContract.test_the_retry_of_a_fork_returns_the_same_fork_as_it_is_now,
        ListingContract.test_scope_and_kind_go_with_every_order,
        ReadContract.test_a_read_is_spared_while_its_stamp_holds,
        ReadContract.test_a_watcher_is_told_at_once_and_after_each_change,
        ReadContract.test_a_watcher_that_was_told_sees_the_change_that_came_while_it_looked,
        ReadContract.test_a_watcher_is_not_told_of_other_sessions,
        ReadContract.test_a_watcher_of_a_session_that_is_deleted_is_told,
        ReadContract.test_a_watcher_of_a_session_that_is_not_there_is_told_at_once,
        ReadContract.test_who_waits_for_commits_is_woken_by_each_in_any_session_and_by_none_when_the_store_closes,
        ReadContract.test_watching_ends_when_the_store_closes,
        ReadContract.test_of_many_ids_that_begin_alike_those_the_session_sees_are_found,
        ReadContract.test_the_feed_tells_the_entries_of_a_revision_in_the_order_they_came,
        RedactionContract.test_a_payload_gives_way_to_a_tombstone_and_the_context_stays_whole,
        SessionContract.test_a_generated_session_id_that_is_taken_is_asked_for_again,
        SizeContract.test_a_message_of_a_megabyte_comes_back_as_it_was,
        SizeContract.test_the_same_large_payload_may_be_stored_many_times_and_deleted_bit_by_bit,
        TaskContract.test_of_several_starts_of_one_task_at_once_all_get_the_same_child,
        TaskContract.test_ends_of_many_tasks_at_once_all_count,
        LedgerContract.test_it_answers_for_a_path_and_a_window_of_it,
        LedgerContract.test_many_calls_at_once_are_each_counted_once,
    )
)
"""Tests with several callers at once, with work that is refused and undone whole or tried again, with callers that wait
for a commit, with values or deletions that are large, and with a store that closes; and some tests of statements that
take or return bytes or are put together for each call.
"""


class RunnerContract(BackendContract):
    """The tests that depend on who runs a transaction."""


for name in dir(RunnerContract):
    if name.startswith("test_") and name not in OF_RUNNERS:
        setattr(RunnerContract, name, None)  # pytest does not collect it
