package main

func Example() {
	main()
	// Unordered output:
	// order-1 applied  <nil>
	// order-1 applied  <nil>
	// order-2 rejected balance <nil>
	// ann was sent 4 bytes
	// keeper was sent 8 bytes
	// ann has 20 coins left
}
