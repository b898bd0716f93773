"""The kinds of failure of a model call, as the log says them. Pure.

docs/reference/models.md has what each means, and what follows.
"""

OVERLOADED = "model_overloaded_error"
RATE_LIMITED = "model_rate_limited_error"
FAILED = "model_request_failed_error"
TIMED_OUT = "model_timeout_error"
CUT = "model_stream_cut_error"
EMPTY = "model_empty_reply_error"
CONTEXT = "model_context_exceeded_error"
FEATURE = "model_feature_missing_error"
MEDIA = "model_media_refused_error"
NOT_FOUND = "model_not_found_error"
PROVIDER = "model_provider_error"
"""The brain's own settings do not lead to a model."""
AUTHENTICATION = "authentication_error"
PERMISSION = "permission_error"
BILLING = "billing_error"
INTERRUPTED = "interrupted"
"""A person did; no failure of anyone's."""

NOT_OF_THE_REQUEST = (
    *(AUTHENTICATION, PERMISSION, BILLING, NOT_FOUND, PROVIDER),
    *(OVERLOADED, RATE_LIMITED, TIMED_OUT, CUT, INTERRUPTED),
)
"""What any other request would have met too: it says nothing of what was asked."""
NOT_COUNTED = (INTERRUPTED, FEATURE, MEDIA)
"""What is no failure to get any nearer: the next request is another one."""
