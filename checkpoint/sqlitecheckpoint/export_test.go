package sqlitecheckpoint

import "database/sql"

// DB is the store's database, for tests that work behind its back.
func (st *Store) DB() *sql.DB { return st.db }

// Source is the driver's name of the file at path.
var Source = source
