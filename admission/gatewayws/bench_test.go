package gatewayws_test

import (
	"testing"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
)

// BenchmarkDo is an intent over one connection to a gateway that answers at once, 16 at a time.
func BenchmarkDo(b *testing.B) {
	_, url := serve(b, &gateway{}, nil)
	client := dial(b, url, nil)
	b.SetParallelism(8)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := client.Do(b.Context(), gatewayws.Request{Tile: here, Kind: admission.Move,
				Body: make([]byte, 64)}); err != nil {
				b.Error(err)
			}
		}
	})
}
