"""The decide form: a verdict, a reason and what the page was bound to when it was shown.

Checks shapes only. Whether the verdict may take effect is asked under the row lock, in `approvals.decisions`.
"""

from typing import Any

from django import forms

from approvals.votes import Bindings

LARGEST = 2**31 - 1


class DecideForm(forms.Form):
    """What a reviewer sends. The reason's own rules are the use case's, so that every route has the same."""

    verdict = forms.CharField(max_length=20)
    reason = forms.CharField(required=False, strip=False)
    state_version = forms.IntegerField(min_value=1, max_value=LARGEST)
    fingerprint = forms.CharField(max_length=71)
    policy_version = forms.IntegerField(min_value=0, max_value=LARGEST)
    view_digest = forms.CharField(max_length=71)
    seq = forms.IntegerField(min_value=1, max_value=LARGEST)

    def bindings(self) -> Bindings:
        """The page's bindings, once the form is valid."""
        data: dict[str, Any] = self.cleaned_data
        return Bindings(**{name: data[name] for name in Bindings.__dataclass_fields__})
