// Package campaign breaks a running system, one fault at a time, and has the histories that everybody
// recorded checked: the model is etcd's robustness suite.
//
//	summary, err := campaign.Run(ctx, campaign.Config{Duration: 10 * time.Minute, Progress: os.Stderr})
//	err = summary.Report(file)
//
// A run is a system of its own on shared servers: worker processes that run tiles over a Redis Cluster and
// PostgreSQL, a supervisor that gives tiles of dead or stuck workers to others, a bridge, a relay, watchers
// and an auditor, and clients that send actions over HTTP and follow redirects. When every tile has answered
// enough, one fault of Faults happens and is mended; then every tile must serve again within a time, and
// the system is brought to rest and judged by package check.
//
// # Seeds
//
// A seed decides the fault, its targets and times, the tiles, the take-overs and the traffic. It does not
// decide what processes, kernel and network make of them, so a run that failed may have to be repeated.
//
// # Programs
//
// A campaign starts its workers from its own executable, and needs a network namespace of its own to part
// hosts. A program that runs one calls RunWorker and EnterNamespace first thing in main, or TestMain.
//
// # Failures
//
// Run's error is about what every run needs: the servers. Everything that a run finds is in its Result, with
// the seed, and the histories are kept. Processes die with the campaign, however that ends; ctx ends it
// after it has mended what it broke.
package campaign
