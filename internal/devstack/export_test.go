package devstack

// Descendants lists the children of a process and theirs.
var Descendants = descendants
