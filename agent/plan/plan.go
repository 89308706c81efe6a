// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

// Package plan decides, without doing anything: what an owner wants loaded and
// attached on this node, and which steps lead there from what the daemon holds.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bpfman/bpfman-operator/agent/daemon"
	"github.com/bpfman/bpfman-operator/agent/program"
	"github.com/bpfman/bpfman-operator/apis/v1alpha1"
	gobpfman "github.com/bpfman/bpfman/clients/gobpfman/v1"
)

// Plan is what an owner wants on this node. The zero Plan wants nothing.
type Plan struct {
	UID        types.UID
	Loads      []Load
	Blocked    []Blocked
	Generation int64
	// Evicted are the kernel ids of programs that are to be unloaded, though they are
	// what is wanted, or stand in for it.
	Evicted map[uint32]bool
}

// Problems joins the problems of all programs, nil if there are none.
func (p Plan) Problems() error {
	var all []error
	for _, load := range p.Loads {
		for _, wanted := range load.Programs {
			all = append(all, wanted.Problem)
		}
	}
	return errors.Join(all...)
}

// Discovers tells whether a function of the n-th Load is to have a link at a place
// that was found on the node.
func (p Plan) Discovers(n int, function string, link daemon.Link) bool {
	return n < len(p.Loads) && slices.ContainsFunc(p.Loads[n].Users(function), func(user Program) bool {
		return slices.ContainsFunc(user.Points, func(point program.AttachPoint) bool {
			return point.Discovered && LinkOf(point) == link
		})
	})
}

// Load is one Load of the daemon: functions that share their maps.
type Load struct {
	// ID is a hash of all that makes a reload necessary when it changes, save
	// whose maps are used.
	ID string
	// Functions are what is loaded, each name once.
	Functions []*gobpfman.LoadInfo
	// Programs are the owner's programs that these functions serve. Several may
	// use one function: then it is loaded once and has the links of all.
	Programs []Program
	// MapOwner is the kernel id of the program whose maps are used.
	MapOwner *uint32
}

// Users are the programs that use a function.
func (l Load) Users(function string) []Program {
	var users []Program
	for _, p := range l.Programs {
		if p.Function() == function {
			users = append(users, p)
		}
	}
	return users
}

// Program is one wanted program.
type Program struct {
	program.Member
	Points []program.AttachPoint
	// Problem tells why some attach points couldn't be told.
	Problem error
	// Policies are what policies have against some of the attach points.
	Policies []v1alpha1.BpfProgramPolicy
}

// Function is the program's entry function.
func (p Program) Function() string { return p.LoadInfo().GetName() }

// complete tells whether all places are known that the program is to be attached to.
func (p Program) complete() bool {
	excess := (*program.ExcessError)(nil)
	return p.Problem == nil || errors.As(p.Problem, &excess)
}

// Wants tells whether the program is to have a link.
func (p Program) Wants(link daemon.Link) bool {
	return slices.ContainsFunc(p.Points, func(point program.AttachPoint) bool { return LinkOf(point) == link })
}

// LinkOf is the link that an attach point asks for.
func LinkOf(point program.AttachPoint) daemon.Link {
	return daemon.Link{Point: point.Name, Digest: point.Digest}
}

// Blocked is a program that can't be loaded as things are.
type Blocked struct {
	program.Member
	Condition v1alpha1.BpfProgramConditionType
	Message   string
}

// MapOwner is a program on this node that others may share the maps of.
type MapOwner struct {
	Name      string // of its BpfProgram
	Namespace string
	Labels    map[string]string
	// ID is its kernel id, or that of the program whose maps it shares itself;
	// 0 while it isn't loaded.
	ID uint32
}

// Want plans an owner's programs.
func Want(owner program.Owner, node program.Node, mapOwners []MapOwner) Plan {
	p := Plan{UID: owner.UID, Generation: owner.Generation}
	for _, member := range owner.Members {
		if incomplete := member.Incomplete(); incomplete != "" {
			p.Blocked = append(p.Blocked, Blocked{member, v1alpha1.BpfProgCondNotLoaded, incomplete})
			continue
		}
		var mapOwner *uint32
		if selector := member.MapOwner(); selector != nil {
			id, blocked := resolve(owner, *selector, mapOwners)
			if blocked != nil {
				blocked.Member = member
				p.Blocked = append(p.Blocked, *blocked)
				continue
			}
			mapOwner = &id
		}
		points, problem := member.AttachPoints(node)
		load := p.loadFor(member.LoadInfo(), mapOwner)
		load.Programs = append(load.Programs, Program{Member: member, Points: points, Problem: problem})
	}
	for n := range p.Loads {
		p.Loads[n].ID = loadID(owner, p.Loads[n].Functions)
	}
	return p
}

// loadFor returns the Load that a function belongs to. There is one for each
// owner of maps, and a further one where functions of one name differ in what is
// fixed when they are loaded, as fentry's do: a Load takes a name once.
func (p *Plan) loadFor(function *gobpfman.LoadInfo, mapOwner *uint32) *Load {
	for n := range p.Loads {
		load := &p.Loads[n]
		if !equal(load.MapOwner, mapOwner) {
			continue
		}
		i := slices.IndexFunc(load.Functions, func(f *gobpfman.LoadInfo) bool { return f.GetName() == function.GetName() })
		if i >= 0 && !proto.Equal(load.Functions[i], function) {
			continue
		}
		if i < 0 {
			load.Functions = append(load.Functions, function)
		}
		return load
	}
	p.Loads = append(p.Loads, Load{MapOwner: mapOwner, Functions: []*gobpfman.LoadInfo{function}})
	return &p.Loads[len(p.Loads)-1]
}

// resolve finds the program that a map owner selector means: exactly one, of
// the owner's own scope.
func resolve(owner program.Owner, selector metav1.LabelSelector, mapOwners []MapOwner) (uint32, *Blocked) {
	s, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Message: "mapownerselector: " + err.Error()}
	}
	var found []MapOwner
	for _, m := range mapOwners {
		if m.Namespace == owner.Namespace && s.Matches(labels.Set(m.Labels)) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 0:
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Message: "no program on this node matches mapownerselector " + s.String()}
	// Programs that use one function are one program with one set of maps.
	case slices.ContainsFunc(found, func(m MapOwner) bool { return m.ID != found[0].ID }):
		names := make([]string, 0, len(found))
		for _, m := range found {
			names = append(names, m.Name)
		}
		slices.Sort(names)
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotFound, Message: fmt.Sprintf("mapownerselector %s matches %d programs on this node instead of one: %v", s, len(names), names)}
	case found[0].ID == 0:
		return 0, &Blocked{Condition: v1alpha1.BpfProgCondMapOwnerNotLoaded, Message: "map owner " + found[0].Name + " is not loaded on this node"}
	}
	return found[0].ID, nil
}

// loadID hashes what is loaded. Its making must not change between versions of
// the agent without need: that would reload every program. Credentials and the
// pull policy are left out, since they don't change what is loaded, and so is
// whose maps are used, which is compared by id.
func loadID(owner program.Owner, functions []*gobpfman.LoadInfo) string {
	type function struct {
		Name, Type, Symbol string
	}
	content := struct {
		Image, Path string
		GlobalData  map[string][]byte
		Functions   []function
	}{GlobalData: owner.GlobalData}
	if image := owner.Bytecode.Image; image != nil {
		content.Image = image.Url
	}
	if path := owner.Bytecode.Path; path != nil {
		content.Path = *path
	}
	for _, f := range functions {
		symbol := f.GetInfo().GetFentryLoadInfo().GetFnName() + f.GetInfo().GetFexitLoadInfo().GetFnName()
		content.Functions = append(content.Functions, function{f.GetName(), f.GetProgramType().String(), symbol})
	}
	// The order of an application's members doesn't matter to the daemon.
	slices.SortFunc(content.Functions, func(a, b function) int { return strings.Compare(a.Name, b.Name) })
	b, _ := json.Marshal(content) //nolint:errchkjson // strings, bytes and numbers always encode
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// Request is the Load's argument, without credentials.
func (l Load) Request(owner program.Owner) (*gobpfman.LoadRequest, error) {
	location := &gobpfman.BytecodeLocation{}
	switch b := owner.Bytecode; {
	case b.Image != nil && b.Image.Url == "":
		return nil, errors.New("bytecode.image.url is empty")
	case b.Image != nil:
		location.Location = &gobpfman.BytecodeLocation_Image{Image: &gobpfman.BytecodeImage{
			Url: b.Image.Url, ImagePullPolicy: pullPolicies[b.Image.ImagePullPolicy],
		}}
	case b.Path != nil && *b.Path == "":
		return nil, errors.New("bytecode.path is empty")
	case b.Path != nil && isDevice(*b.Path):
		return nil, fmt.Errorf("bytecode path %s is not a regular file: the daemon would never finish reading it", *b.Path)
	case b.Path != nil:
		location.Location = &gobpfman.BytecodeLocation_File{File: *b.Path}
	default:
		return nil, errors.New("bytecode has neither an image nor a path")
	}
	for _, name := range slices.Sorted(maps.Keys(owner.GlobalData)) {
		if owner.GlobalData[name] == nil {
			return nil, fmt.Errorf("globaldata %s is neither base64 nor a list of bytes", name)
		}
	}
	uid := string(owner.UID)
	request := &gobpfman.LoadRequest{
		Bytecode:   location,
		GlobalData: owner.GlobalData,
		MapOwnerId: l.MapOwner,
		Uuid:       &uid,
		Metadata: map[string]string{
			v1alpha1.MetadataUUID:        uid,
			v1alpha1.MetadataProgramName: owner.Name,
			v1alpha1.MetadataKind:        owner.Kind,
			v1alpha1.MetadataLoad:        l.ID,
		},
	}
	if owner.Namespace != "" {
		request.Metadata[v1alpha1.MetadataNamespace] = owner.Namespace
	}
	request.Info = l.Functions
	return request, nil
}

// isDevice tells that a path may lead to what has no end, or never answers.
func isDevice(file string) bool {
	file = path.Clean("/" + file)
	return slices.ContainsFunc([]string{"/dev", "/proc", "/sys", "/host/proc"}, func(dir string) bool {
		return file == dir || strings.HasPrefix(file, dir+"/")
	})
}

// The numbers that the daemon's wire has for pull policies.
const (
	PullAlways       = 0
	PullIfNotPresent = 1
	PullNever        = 2
)

var pullPolicies = map[v1alpha1.PullPolicy]int32{
	v1alpha1.PullAlways: PullAlways, v1alpha1.PullIfNotPresent: PullIfNotPresent, v1alpha1.PullNever: PullNever, "": PullIfNotPresent,
}
