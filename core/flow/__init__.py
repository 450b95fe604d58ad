"""What every worker shares: the flow_run document, its statuses, selection, claims and leases."""
