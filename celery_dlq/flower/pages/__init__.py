"""The pages of the tab, one file each. A request enters; a view with the page's values goes to its template.
Pages share handlers with the REST API, but not its code."""
