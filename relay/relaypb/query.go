package relaypb

import (
	"encoding/base64"
	"fmt"
	"net/url"

	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
)

// SubscribeParam is the parameter of a handshake's URL that holds the client's first Subscribe: the message in binary
// protobuf, whatever the subprotocol, in unpadded base64url (RFC 4648, section 5). The relay then answers the handshake
// and the subscription at once, which saves the client a round trip.
const SubscribeParam = "subscribe"

// SubscribedHeader is in the response to a handshake whose SubscribeParam was taken, with the value "1". A relay of an
// earlier release ignores the parameter: without the header, send the Subscribe as a message.
const SubscribedHeader = "Tilefence-Subscribed"

// MaxSubscribeParam is how many bytes the value of a SubscribeParam may have, so that the request fits everywhere.
const MaxSubscribeParam = 4 << 10

// SubscribeURL returns a relay's URL with a Subscribe in it. ok is false if that is too long, or if raw is not a URL:
// send the message when the connection is there.
func SubscribeURL(raw string, s *Subscribe) (full string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return raw, false
	}
	data, err := proto.Marshal(s)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(data)) > MaxSubscribeParam {
		return raw, false
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += SubscribeParam + "=" + base64.RawURLEncoding.EncodeToString(data)
	return u.String(), true
}

// ParseSubscribe reads the value of a SubscribeParam. A *fence.ArgumentError says that it is none.
func ParseSubscribe(value string) (*Subscribe, error) {
	if len(value) > MaxSubscribeParam {
		return nil, &fence.ArgumentError{Field: SubscribeParam, Value: fmt.Sprint(len(value), " bytes"),
			Want: fmt.Sprint("at most ", MaxSubscribeParam)}
	}
	s := &Subscribe{}
	data, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err == nil {
		err = proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, s)
	}
	if err != nil {
		return nil, &fence.ArgumentError{Field: SubscribeParam, Value: value[:min(len(value), 32)],
			Want: "a Subscribe in binary protobuf, in base64url without padding"}
	}
	return s, nil
}
