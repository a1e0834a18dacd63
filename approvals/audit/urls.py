"""Addresses of the auditors' pages."""

from django.urls import path

from approvals.audit import views

app_name = "audit"
urlpatterns = [
    path("", views.search, name="search"),
    path("actions/<uuid:action_id>/", views.story, name="story"),
]
