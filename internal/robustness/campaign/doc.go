//go:build unix

// Package campaign injects faults into a running system, one at a time, and checks the recorded histories. The
// model is etcd's robustness suite.
//
//	summary, err := campaign.Run(ctx, campaign.Config{Duration: 10 * time.Minute, Progress: os.Stderr})
//	err = os.WriteFile("report.md", []byte(summary.Report()), 0o644)
//
// A run is a system of its own on shared servers, put together by package tilefence: tile servers in processes of their
// own, and gateways, a bridge, relays and a checkpointer in this one, over two Redis Clusters, PostgreSQL and a
// DynamoDB-compatible server. A supervisor gives tiles of dead or stuck workers to others; there are watchers, an
// auditor, clients that send actions to tile servers and follow redirects, and players that pay. When every tile has
// answered enough, one fault of Faults is injected and removed; then every tile must serve again within a time, the
// system is brought to rest, and package check checks its histories.
//
// # Seeds
//
// A seed decides the fault, its targets and times, the tiles, the take-overs and the traffic. It does not
// decide what processes, kernel and network make of them, so a run that failed may have to be repeated.
//
// # Programs
//
// A campaign starts its workers from its own executable, and needs a network namespace of its own to separate
// hosts. A program that runs one calls RunWorker and EnterNamespace first thing in main, or TestMain.
//
// # Failures
//
// Run returns an error if the servers that every run needs fail. What a run finds is in its Result, with the
// seed, and the histories are kept. Processes end with the campaign, however that ends. When ctx ends, the
// campaign first removes the fault.
package campaign
