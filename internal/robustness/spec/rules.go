package spec

// Rule is one rule of the commit protocol that the model can do without.
type Rule string

// The rules, in the words of docs/protocol.md where it has them. Without any one of them, all but the four of
// secondLines, the search finds a broken invariant.
const (
	EpochCompared    Rule = "a lower epoch is refused"
	PositionCompared Rule = "a batch follows the position that it names"
	ChainCompared    Rule = "a position is the whole history"
	ClaimInInstall   Rule = "an epoch granted twice is two claims"
	AbsentIsNotZero  Rule = "a missing owner hash is not epoch zero"
	GrantConditional Rule = "a grant is one conditional update"
	InstallConfirmed Rule = "an install is confirmed before it serves"
	CopiesCounted    Rule = "every copy counts, in contact or not"
	FilesWritten     Rule = "a master does not come back empty"
	MintedAbove      Rule = "an epoch is minted above those the store shows"
	AsksFirst        Rule = "an owner without an owner hash asks the authority"
	LaterOwnerCounts Rule = "a later owner that the authority forgot counts"
	WhoWentOnCounts  Rule = "an earlier owner that went on where all was lost counts"
	RebaseNamesWhat  Rule = "a rebase names what it replaces"
	Reappends        Rule = "a living owner appends again what was lost"
	Immutable        Rule = "a batch is presented until its fate is known"
	FloorOfEpochs    Rule = "a watcher keeps a floor of epochs"
	PrevCompared     Rule = "a watcher compares prev"
	JournalFirst     Rule = "write-through acknowledges after the journal"
	JournalFenced    Rule = "the journal refuses a lower epoch"
	SealedBeforeRead Rule = "the journal is sealed before it is read"
	AppendFollows    Rule = "an append names what it follows"
)

// The rules of what crosses a border.
const (
	PresentsStable Rule = "what is presented cannot be undone"
	AnswersStable  Rule = "what is answered cannot be undone"
	JournalSpoken  Rule = "a tile with a journal speaks of what that has"
	DecidedOnce    Rule = "a destination decides what follows its mark"
	FollowsMark    Rule = "a destination decides nothing after a gap"
	RefusalsKept   Rule = "a refusal is kept until it is settled"
	DecidedFirst   Rule = "an outbox keeps a departure until it is decided"
	ParkedKept     Rule = "what the rules fail with is parked"
	RetakenLeaves  Rule = "what is taken back is not parked"
	MarksKept      Rule = "a mark is a part of the tile's state"
	AwakeUnderWay  Rule = "a tile with something under way does not rest"
	BordersAlike   Rule = "both ends of a border promise the same"
	NotCalledBack  Rule = "what is under way is not called back"
)
