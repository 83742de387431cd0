package redisviewcache

import "strings"

// Mutate puts an error into the library of this process, which then has another name than the real one.
func Mutate(edits ...string) (changed bool) {
	text := strings.NewReplacer(edits...).Replace(source)
	library = build(text)
	return text != source
}
