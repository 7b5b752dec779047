"""The report: results as figures for papers and as one page that a person explores."""
