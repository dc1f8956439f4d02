"""What the inputs that each fuzzer's tests refuse become: the errors, by the test."""

from __future__ import annotations

from collections.abc import Mapping

_ARTIFACT, _BUDGET, _RESERVATION = "ArtifactNotFound", "BudgetNotFound", "ReservationNotFound"
_CALL, _CORRUPT, _ENTRY, _FILE = "InvalidArgument", "CorruptStore", "InvalidEntry", "UnreadableFile"
_NO_ENTRY, _NO_SESSION, _NO_STORE, _OTHER_FILE = "EntryNotFound", "SessionNotFound", "StoreUnavailable", "NotAStore"
_LEAF = "LeafConflict"
_METHODS = {_ARTIFACT, _BUDGET, _CALL, _ENTRY, _LEAF, _NO_ENTRY, _NO_SESSION, _RESERVATION}

_OF_ARGUMENTS: Mapping[str, set[str]] = {
    "None": {_ARTIFACT, _LEAF, _NO_ENTRY, _RESERVATION}, "an integer": {_ARTIFACT, _RESERVATION, "RevisionConflict"},
    "an integer beyond 64 bits": {_ARTIFACT}, "an integer with too many digits to print": {_ARTIFACT},
    "a float": {_RESERVATION}, "empty text": {*_METHODS, "IdempotencyConflict", "SessionExists"},
    "a text": {*_METHODS, "IdempotencyConflict", "SessionExists"}, "NUL": _METHODS, "a lone surrogate": _METHODS,
    "a long text": _METHODS, "a tuple": {_NO_ENTRY, _NO_SESSION}, "a class": {_NO_ENTRY}, "a function": {_NO_ENTRY},
    "STORED": {_NO_ENTRY},
}  # fmt: skip
"""What odd arguments become beside `_CALL` and `_ENTRY`."""

BECAME: Mapping[str, set[str]] = {
    # Arguments.
    "test_a_backup_refuses_what_it_does_not_take_and_leaves_nothing": {_CALL},
    "test_a_clock_or_a_source_of_ids_that_answers_nonsense_is_refused": {_CALL},
    "test_a_cursor_that_was_not_given_is_refused": {_CALL},
    "test_a_guard_is_made_of_nothing_else": {_CALL},
    "test_a_guard_refuses_what_it_does_not_take": {_CALL},
    "test_a_rescue_refuses_what_is_no_path": {_CALL},
    "test_a_url_that_leads_nowhere_is_refused_without_its_password": {_CALL, _NO_STORE, _OTHER_FILE},
    "test_an_entry_with_any_field_odd_is_imported_or_refused": {_ENTRY},
    "test_any_text_as_a_place_names_an_entry_or_is_not_found": {_NO_ENTRY},
    "test_entries_that_no_store_can_hold_are_not_imported": {_ENTRY},
    "test_every_method_refuses_what_it_does_not_take_and_every_store_alike": {_CALL, _ENTRY},
    **{
        f"test_every_method_refuses_what_it_does_not_take_and_every_store_alike[{name}]": {_CALL, _ENTRY, *errors}
        for name, errors in _OF_ARGUMENTS.items()
    },
    "test_ids_that_are_always_taken_come_to_an_end": {_CALL},
    "test_limits_are_whole_numbers_that_databases_can_count_to": {_CALL},
    "test_open_refuses_what_it_does_not_take": {_CALL},
    "test_the_blocking_guard_refuses_alike": {_CALL},
    "test_the_blocking_twin_refuses_alike": _METHODS,
    "test_what_is_no_id_is_never_taken_for_one": {
        _ARTIFACT, _CALL, _ENTRY, _NO_ENTRY, _RESERVATION, "RevisionConflict"
    },
    # The command line.
    "test_a_report_of_anything_goes_to_any_file_or_is_one_error": {_CALL, _NO_SESSION, _NO_STORE},
    "test_any_words_are_a_command_or_one_error": {_NO_STORE},
    # Compaction.
    "test_a_model_that_answers_nonsense_is_a_failed_summary": {"SummaryFailed"},
    "test_arguments_without_a_bottom_are_refused": {_ENTRY},
    # Files to import.
    "test_a_damaged_file_is_imported_as_far_as_it_can_be_read": {_FILE},
    "test_a_wrong_type_anywhere_in_a_document_is_refused_or_imported": {_FILE},
    "test_every_odd_file_is_imported_alike_by_every_store": {_FILE},
    # Messages.
    "test_any_object_is_a_message_or_refused_and_both_checks_agree": {_ENTRY},
    "test_any_value_is_stored_as_itself_or_refused": {_ENTRY},
    "test_fifty_megabytes_of_text_are_kept_and_more_than_the_limit_is_refused": {_ENTRY},
    "test_text_is_json_or_a_corrupt_payload": {_CORRUPT},
    "test_what_json_cannot_hold_is_refused_by_name": {_ENTRY},
    # Operations.
    "test_any_operations_are_answered_alike_by_memory_and_sqlite": {_NO_ENTRY},
    "test_malformed_cases_of_deletion_and_lifecycle_leave_the_store_sound": {_CALL},
}  # fmt: skip
"""What some input becomes each time the test runs, for each of its parameters, or for the one that is named."""

MAY_BECOME: Mapping[str, set[str]] = {
    # Of several odd arguments it is chance which is met first.
    "test_several_odd_arguments_at_once_are_refused_like_one": {
        *_METHODS, "IdempotencyConflict", "RevisionConflict", "SessionExists",
    },
    "test_postgresql_refuses_alike": {*_METHODS, "IdempotencyConflict", "RevisionConflict", "SessionExists"},
    "test_any_words_are_a_command_or_one_error": {_CALL},
    # Others depend on the parameter, or on what is drawn.
    "test_a_database_that_cannot_be_is_one_error": {_CALL, _NO_STORE, _OTHER_FILE},
    "test_a_document_with_any_json_in_it_is_refused_or_imported": {_FILE},
    "test_a_file": {_FILE},
    "test_a_file_in_an_encoding_that_is_not_utf_8_is_refused_or_read": {_FILE},
    "test_a_wrong_type_at_any_field_of_a_row_is_repaired_or_named": {_FILE},
    "test_an_entry_with_any_field_odd_is_imported_or_refused": {_NO_ENTRY},
    "test_an_odd_argument_anywhere_is_one_error_or_none": {
        _CALL, _NO_ENTRY, _NO_SESSION, _NO_STORE, _OTHER_FILE, "AmbiguousId",
    },
    "test_any_operations_are_answered_alike_by_postgresql": {_NO_ENTRY, _ENTRY},
    "test_any_operations_are_answered_alike_by_memory_and_sqlite": {_ENTRY},
    "test_any_usage_is_ten_numbers_or_refused": {_ENTRY},
    "test_damaged_or_bottomless_json_text_is_a_corrupt_payload_or_a_value": {_CORRUPT, _ENTRY},
    "test_open_refuses_what_it_does_not_take": {_NO_STORE},
    "test_rows_that_are_nearly_right_with_parents_anywhere_are_imported": {_FILE},
    "test_settings_and_earlier_compactions_take_whole_numbers": {_CALL},
    "test_the_builders_of_entries_refuse_what_they_do_not_take": {_CALL, _ENTRY},
}  # fmt: skip
"""What inputs may become beside that. Anything else is a change of what is promised, and belongs in here first."""
