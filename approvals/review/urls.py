"""Addresses of the reviewers' pages."""

from django.urls import path

from approvals.review import views

app_name = "review"
urlpatterns = [
    path("", views.inbox, name="inbox"),
    path("help/", views.help_page, name="help"),
    path("actions/<uuid:action_id>/", views.action, name="action"),
    path("actions/<uuid:action_id>/decide", views.decide, name="decide"),
]
