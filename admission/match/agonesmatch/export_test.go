package agonesmatch

// Account has allocators find the pod's service account in a directory.
func Account(dir string) { account = dir }

// Parse reads an answer about a match.
func Parse(answer []byte, id string) (GameServer, string, error) { return parse(answer, label(id)) }

// Label is what stands for a match.
func Label(id string) string { return label(id) }
