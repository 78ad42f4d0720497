"""How a model request fails."""

import pytest

from creche.errors import ContextOverflowError, ModelError
from creche.models import FAILURES, failure_of_status, model_error


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (400, "", "invalid-request"),
        (400, "This model's maximum context length is 8192 tokens.", "context-overflow"),
        (400, '{"code":"context_length_exceeded"}', "context-overflow"),
        (400, "prompt is too long: 208310 tokens > 200000 maximum", "context-overflow"),
        (400, "the request exceeds the available context size", "context-overflow"),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed", "context-overflow"),
        (400, "Input is too long for requested model.", "context-overflow"),
        (413, "too many tokens", "context-overflow"),
        (413, "body too large", "invalid-request"),
        (400, "Your credit balance is too low", "quota"),
        (400, "The model `gpt-9` does not exist", "unknown-model"),
        (400, "Model Not Exist", "unknown-model"),
        (401, "", "credential"),
        (402, "Insufficient Balance", "quota"),
        (402, "", "quota"),
        (403, "", "credential"),
        (403, "billing is disabled", "quota"),
        (404, "", "unknown-model"),
        (408, "", "timeout"),
        (409, "", "invalid-request"),
        (422, "", "invalid-request"),
        (429, "", "rate-limit"),
        (429, '{"code":"insufficient_quota"}', "quota"),
        (429, "maximum context length", "rate-limit"),
        (500, "maximum context length", "server"),
        (502, "", "server"),
        (503, "", "overloaded"),
        (504, "", "server"),
        (529, "", "overloaded"),
        (302, "", "invalid-request"),
    ],
)
def test_a_status_and_its_wording_say_what_failed(status, text, code):
    assert failure_of_status(status, text) == code
    assert code in FAILURES


def test_what_may_be_tried_again():
    """Rule: one table says whether the same request may succeed later."""
    assert sorted(code for code, failure in FAILURES.items() if failure.retryable) == [
        "empty-response",
        "malformed",
        "overloaded",
        "rate-limit",
        "server",
        "stream-cut",
        "timeout",
        "transport",
    ]


@pytest.mark.parametrize("code", FAILURES)
def test_an_error_carries_what_the_table_says(code):
    error = model_error(code, "what happened", provider="p", retry_after=2.5)
    assert (str(error), error.code, error.provider, error.retry_after) == ("what happened", code, "p", 2.5)
    assert error.retryable == FAILURES[code].retryable
    assert (type(error) is ContextOverflowError) == (code == "context-overflow")
    assert isinstance(error, ModelError)


@pytest.mark.parametrize("failure", FAILURES.values(), ids=lambda failure: failure.code)
def test_every_failure_has_a_code_and_a_cure(failure):
    assert FAILURES[failure.code] is failure
    assert failure.cure
    assert failure.fault in ("caller", "provider", "network", "model")


def test_a_code_that_is_not_in_the_table_is_refused():
    with pytest.raises(ValueError, match="no kind of failure") as caught:
        model_error("sever", "")
    assert str(caught.value) == f"no kind of failure has the code 'sever'; there are {', '.join(FAILURES)}"


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        FAILURES["mine"] = FAILURES["server"]
