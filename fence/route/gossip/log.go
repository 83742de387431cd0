package gossip

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// logLines makes a *log.Logger for memberlist whose lines go to l at debug level: memberlist logs ordinary
// network failures as errors.
func logLines(l *slog.Logger) *log.Logger { return log.New(lines{l}, "", 0) }

type lines struct{ logger *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) {
		text := strings.TrimSpace(string(b))
		level := "info"
		if rest, ok := strings.CutPrefix(text, "["); ok {
			if name, after, ok := strings.Cut(rest, "] "); ok {
				level, text = strings.ToLower(name), strings.TrimPrefix(after, "memberlist: ")
			}
		}
		l.logger.Debug("memberlist", "message", text, "level", level)
	}
	return len(b), nil
}
