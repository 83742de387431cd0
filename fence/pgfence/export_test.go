package pgfence

// Statements returns the statements by the name of their file.
func (a *Authority) Statements() map[string]string {
	return map[string]string{
		"claim_new": a.sql.claimNew, "claim_released": a.sql.claimReleased,
		"promote": a.sql.promote, "release": a.sql.release, "read": a.sql.read,
		"raise": a.sql.raise, "retire": a.sql.retire,
	}
}
