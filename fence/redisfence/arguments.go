package redisfence

// arguments are those of one command, with room for their values. go-redis takes a []any: a value put into it by
// itself costs an allocation each, a pointer to one that has its room here costs none.
type arguments struct {
	list    []any
	room    [maxArguments]any
	texts   [maxArguments]string
	numbers [maxArguments]uint64
	payload payload
}

// maxArguments is the most a call of a writing function has: FCALL, the function, the number of keys, the keys and the
// function's own. More of them allocate.
const maxArguments = 16

// payload is bytes that go-redis writes as they are.
type payload []byte

// MarshalBinary implements encoding.BinaryMarshaler.
func (p *payload) MarshalBinary() ([]byte, error) { return *p, nil }

// fcall begins a call of a function on its keys.
func (a *arguments) fcall(function string, keys ...string) {
	a.list = append(a.room[:0], "fcall")
	a.text(function)
	a.list = append(a.list, len(keys))
	for _, k := range keys {
		a.text(k)
	}
}

// keys are those of a call of a function.
func (a *arguments) keys() []string {
	n, _ := a.list[2].(int)
	return a.texts[3 : 3+n]
}

func (a *arguments) text(s string) {
	at := &a.texts[len(a.list)]
	*at = s
	a.list = append(a.list, at)
}

func (a *arguments) number(n uint64) {
	at := &a.numbers[len(a.list)]
	*at = n
	a.list = append(a.list, at)
}

// bytes adds the payload, of which a call has one.
func (a *arguments) bytes(b []byte) {
	a.payload = b
	a.list = append(a.list, &a.payload)
}
