// A page that was opened as a file may not fetch others, so search shows their titles without an extract there.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
