"""Several ranks of one launch: what each did, which collectives belong together, and what one's lateness costs the
others. Tables in, tables out: no trace is read here."""
